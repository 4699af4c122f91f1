#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "tessera/v1/parameter_service.pb.h"
#include "worker/parameters/shared_memory.h"
#include "worker/parameters/slot_pool.h"

namespace tessera::worker {

// The bulk data of one block of a message.
struct BulkBlock {
  absl::Span<const char> keys;
  const char* values = nullptr;  // [value_bytes]; null: the ps writes them
  uint64_t value_bytes = 0;
};

// The bulk of one attempt of a call, in a slot of shared memory. Destroyed when the attempt ends.
class SharedBulk {
 public:
  // Copies the bulk to a slot. Returns none if the message must carry its bulk itself: the ps
  // shares no memory, no slot is free, or the bulk is too small to be worth a slot or too large for
  // one.
  static std::optional<SharedBulk> Put(SharedMemory& memory, size_t ps,
                                       absl::Span<const BulkBlock> blocks);

  // What the message says instead of the bulk.
  const v1::SharedBulk& description() const { return description_; }
  // The values of a block, [value_bytes].
  const char* values(size_t block) const { return values_[block]; }

 private:
  SharedBulk(Slot slot, uint64_t region, absl::Span<const BulkBlock> blocks);

  Slot slot_;
  v1::SharedBulk description_;
  std::vector<const char*> values_;  // [blocks]
};

// The attempts of one call's message, one after another. Used by one thread at a time.
class SharedAttempt {
 public:
  // The region with the bulk of the attempt; none: the bulk is in the message, or there is no
  // attempt.
  std::optional<uint64_t> region() const {
    return shared_.has_value() ? std::optional(shared_->description().region()) : std::nullopt;
  }
  // Ends the attempt, if there is one.
  void End() { shared_.reset(); }

 protected:
  // Begins an attempt; ends the one before.
  void Begin(std::optional<SharedBulk> shared) {
    shared_.reset();
    if (shared.has_value()) shared_.emplace(*std::move(shared));
  }
  // None: as for region().
  const std::optional<SharedBulk>& shared() const { return shared_; }

 private:
  std::optional<SharedBulk> shared_;
};

}  // namespace tessera::worker

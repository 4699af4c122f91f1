#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "tessera/v1/parameter_service.pb.h"
#include "worker/shared_memory.h"
#include "worker/slot_pool.h"

namespace tessera::worker {

// The bulk of one block of a message.
struct BulkBlock {
  absl::Span<const char> keys;
  const char* values = nullptr;  // [value_bytes]; null: the ps is to write them
  uint64_t value_bytes = 0;
};

// The bulk of one attempt of a call, in a slot. Goes when the attempt is over.
class SharedBulk {
 public:
  // Copies it there. None: the message is to carry its bulk, since the ps shares no memory, no slot
  // is free, or the bulk is too small to be worth one or too large for one.
  static std::optional<SharedBulk> Put(SharedMemory& memory, size_t ps,
                                       absl::Span<const BulkBlock> blocks);

  // For the message.
  const v1::SharedBulk& description() const { return description_; }
  // [value_bytes] of a block.
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
  // The region where the bulk of the attempt lies; none: it is in the message, or there is no
  // attempt.
  std::optional<uint64_t> region() const {
    return shared_.has_value() ? std::optional(shared_->description().region()) : std::nullopt;
  }
  // Ends the attempt, if there is one.
  void End() { shared_.reset(); }

 protected:
  // Ends the one before.
  void Begin(std::optional<SharedBulk> shared) {
    shared_.reset();
    if (shared.has_value()) shared_.emplace(*std::move(shared));
  }
  // None: as region().
  const std::optional<SharedBulk>& shared() const { return shared_; }

 private:
  std::optional<SharedBulk> shared_;
};

}  // namespace tessera::worker

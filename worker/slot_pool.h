#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/shared_memory/mapped_region.h"

namespace tessera::worker {

class SlotPool;

// A slot of a pool, for one attempt of one call. Gives it back when it goes; it may go at any time,
// also while the ps is at work on it. Keeps the pool. Movable; used by one thread at a time.
class Slot {
 public:
  Slot(Slot&& other) noexcept = default;
  Slot& operator=(Slot&&) = delete;
  ~Slot();

  absl::Span<char> memory() const;
  // What the ps is to read has been written: from here on it may take the slot, once, and until it
  // has answered nothing here is to be read or written.
  void MarkSent();
  uint32_t number() const { return number_; }
  uint64_t use() const { return use_; }

 private:
  friend class SlotPool;
  Slot(std::shared_ptr<SlotPool> pool, uint32_t number, uint64_t use)
      : pool_(std::move(pool)), number_(number), use_(use) {}

  std::shared_ptr<SlotPool> pool_;  // null: moved from
  uint32_t number_;
  uint64_t use_;
};

// The slots of a region of this worker's that one ps has, too. One is used again when the ps has
// said that it is done with it, or can no longer begin to use it. Thread-safe.
class SlotPool : public std::enable_shared_from_this<SlotPool> {
 public:
  // As MappedRegion::Create.
  static absl::StatusOr<std::shared_ptr<SlotPool>> New(uint32_t slots, uint32_t slot_bytes);

  const shared_memory::MappedRegion& region() const { return *region_; }
  // None: all are in use, by calls that are under way or by the ps.
  std::optional<Slot> Take() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  friend class Slot;
  explicit SlotPool(std::unique_ptr<shared_memory::MappedRegion> region);
  void GiveBack(uint32_t slot) ABSL_LOCKS_EXCLUDED(mu_);
  // Whether it is free, or can be had back before the ps has taken it.
  bool Regain(uint32_t slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::unique_ptr<shared_memory::MappedRegion> region_;
  absl::Mutex mu_;
  std::vector<uint64_t> uses_ ABSL_GUARDED_BY(mu_);  // [slots], of each so far
  // The last one to come is the first to go: it is still in the caches.
  std::vector<uint32_t> free_ ABSL_GUARDED_BY(mu_);
  std::vector<uint32_t> taken_ ABSL_GUARDED_BY(mu_);  // given back, and still the ps's
};

}  // namespace tessera::worker

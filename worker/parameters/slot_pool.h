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

// A slot of a pool, for one attempt of one call. Its destructor gives the slot back, at any time,
// even while the ps works on the slot. Keeps the pool alive. Movable; used by one thread at a time.
class Slot {
 public:
  Slot(Slot&& other) noexcept = default;
  Slot& operator=(Slot&&) = delete;
  ~Slot();

  absl::Span<char> memory() const;
  // Called when what the ps shall read has been written. From here on the ps may take the slot,
  // once, and until it has answered the worker must neither read nor write the slot.
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

// The slots of a region of this worker that one ps has mapped too. A slot is used again once the ps
// is done with it, or can no longer begin to use it. Thread-safe.
class SlotPool : public std::enable_shared_from_this<SlotPool> {
 public:
  // Errors as MappedRegion::Create.
  static absl::StatusOr<std::shared_ptr<SlotPool>> New(uint32_t slots, uint32_t slot_bytes);

  const shared_memory::MappedRegion& region() const { return *region_; }
  // None: all slots are in use, by calls under way or by the ps.
  std::optional<Slot> Take() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  friend class Slot;
  explicit SlotPool(std::unique_ptr<shared_memory::MappedRegion> region);
  void GiveBack(uint32_t slot) ABSL_LOCKS_EXCLUDED(mu_);
  // Whether the slot is free. Takes it back if the ps has not begun to use it.
  bool Regain(uint32_t slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::unique_ptr<shared_memory::MappedRegion> region_;
  absl::Mutex mu_;
  std::vector<uint64_t> uses_ ABSL_GUARDED_BY(mu_);  // [slots] how often each has been taken
  // Last in, first out: the slot freed last is still in the processor's caches.
  std::vector<uint32_t> free_ ABSL_GUARDED_BY(mu_);
  std::vector<uint32_t> taken_ ABSL_GUARDED_BY(mu_);  // given back, but the ps still uses them
};

}  // namespace tessera::worker

#include "worker/parameters/slot_pool.h"

#include <algorithm>

#include "common/status_macros.h"

namespace tessera::worker {

using shared_memory::MappedRegion;
using shared_memory::SlotState;
using shared_memory::SlotWord;

Slot::~Slot() {
  if (pool_ != nullptr) pool_->GiveBack(number_);
}

absl::Span<char> Slot::memory() const {
  return {pool_->region().slot(number_), pool_->region().slot_bytes()};
}

void Slot::MarkSent() {
  pool_->region().word(number_).store(SlotWord::Of(use_, SlotState::kSent),
                                      std::memory_order_release);
}

absl::StatusOr<std::shared_ptr<SlotPool>> SlotPool::New(uint32_t slots, uint32_t slot_bytes) {
  TESSERA_ASSIGN_OR_RETURN(auto region, MappedRegion::Create(slots, slot_bytes));
  return std::shared_ptr<SlotPool>(new SlotPool(std::move(region)));
}

SlotPool::SlotPool(std::unique_ptr<MappedRegion> region)
    : region_(std::move(region)), uses_(region_->slots()), free_(region_->slots()) {
  for (uint32_t s = 0; s < region_->slots(); ++s) free_[s] = region_->slots() - 1 - s;
}

std::optional<Slot> SlotPool::Take() {
  absl::MutexLock lock(&mu_);
  taken_.erase(std::remove_if(taken_.begin(), taken_.end(),
                              [this](uint32_t slot) {
                                mu_.AssertHeld();
                                if (!Regain(slot)) return false;
                                free_.push_back(slot);
                                return true;
                              }),
               taken_.end());
  if (free_.empty()) return std::nullopt;
  const uint32_t slot = free_.back();
  free_.pop_back();
  return Slot(shared_from_this(), slot, ++uses_[slot]);
}

bool SlotPool::Regain(uint32_t slot) {
  const uint64_t use = uses_[slot];
  uint64_t found = SlotWord::Of(use, SlotState::kSent);
  // If this succeeds, a message that is still on its way finds that it cannot take the slot.
  return region_->word(slot).compare_exchange_strong(found, SlotWord::Of(use, SlotState::kFree),
                                                     std::memory_order_acq_rel) ||
         found != SlotWord::Of(use, SlotState::kTaken);
}

void SlotPool::GiveBack(uint32_t slot) {
  absl::MutexLock lock(&mu_);
  (Regain(slot) ? free_ : taken_).push_back(slot);
}

}  // namespace tessera::worker

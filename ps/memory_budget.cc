#include "ps/memory_budget.h"

namespace tessera::ps {

MemoryBudget::MemoryBudget(uint64_t bytes) : bytes_(bytes) {}

uint64_t MemoryBudget::ForRows() const { return bytes_ - std::min(others(), bytes_ / 2); }

uint64_t MemoryBudget::Excess() const {
  const uint64_t low = ForRows() - 2 * slack();
  return rows() > low ? rows() - low : 0;
}

void MemoryBudget::Charge(int64_t bytes) {
  const bool was_pressed = Pressed();
  const bool had_room = HasRoom();
  rows_.fetch_add(bytes, std::memory_order_relaxed);
  if (bytes < 0) left_.fetch_add(static_cast<uint64_t>(-bytes), std::memory_order_relaxed);
  if (was_pressed == Pressed() && had_room == HasRoom()) return;
  if (Pressed()) pressure_.Send();
  if (HasRoom()) room_.Send();
}

void MemoryBudget::SetOthers(uint64_t bytes) {
  others_.store(bytes, std::memory_order_relaxed);
  if (HasRoom()) room_.Send();
}

bool MemoryBudget::WaitForRoom(absl::Duration limit) {
  if (HasRoom()) return true;
  uint64_t seen = left_.load(std::memory_order_relaxed);
  while (!room_.Await(limit, [this] { return HasRoom(); })) {
    const uint64_t left = left_.load(std::memory_order_relaxed);
    if (left == seen) return false;
    seen = left;
  }
  return true;
}

bool MemoryBudget::WaitForPressure(absl::Duration limit) {
  const uint64_t woken = woken_.load(std::memory_order_relaxed);
  pressure_.Await(limit,
                  [&] { return Pressed() || woken_.load(std::memory_order_relaxed) != woken; });
  return Pressed();
}

void MemoryBudget::Wake() {
  woken_.fetch_add(1, std::memory_order_relaxed);
  pressure_.Send();
}

}  // namespace tessera::ps

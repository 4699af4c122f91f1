#include "ps/memory/memory_budget.h"

namespace tessera::ps {

MemoryBudget::MemoryBudget(uint64_t bytes) : bytes_(bytes) {}

uint64_t MemoryBudget::ForRows() const { return bytes_ - std::min(others(), bytes_ / 2); }

uint64_t MemoryBudget::Excess() const {
  const uint64_t low = ForRows() - 2 * slack();
  return rows() > low ? rows() - low : 0;
}

uint64_t MemoryBudget::ExcessPages() const {
  const uint64_t room = ForRows();
  const uint64_t pages = this->pages();
  return pages > room + page_slack() ? pages - room : 0;
}

void MemoryBudget::Charge(int64_t bytes) { Add(bytes, rows_); }

void MemoryBudget::ChargePages(int64_t bytes) { Add(bytes, pages_); }

void MemoryBudget::Add(int64_t bytes, std::atomic<int64_t>& counter) {
  const bool was_pressed = Pressed();
  const bool had_room = HasRoom();
  counter.fetch_add(bytes, std::memory_order_relaxed);
  if (bytes < 0) left_.fetch_add(static_cast<uint64_t>(-bytes), std::memory_order_relaxed);
  if (was_pressed == Pressed() && had_room == HasRoom()) return;
  absl::MutexLock lock(&mu_);
}

void MemoryBudget::SetOthers(uint64_t bytes) {
  others_.store(bytes, std::memory_order_relaxed);
  absl::MutexLock lock(&mu_);
}

bool MemoryBudget::WaitForRoom(absl::Duration limit) {
  if (HasRoom()) return true;
  uint64_t seen = left_.load(std::memory_order_relaxed);
  const auto has_room = [this] { return HasRoom(); };
  absl::MutexLock lock(&mu_);
  while (!mu_.AwaitWithTimeout(absl::Condition(&has_room), limit)) {
    const uint64_t left = left_.load(std::memory_order_relaxed);
    if (left == seen) return false;
    seen = left;
  }
  return true;
}

bool MemoryBudget::WaitForPressure(absl::Duration limit) {
  absl::MutexLock lock(&mu_);
  const uint64_t woken = woken_;
  const auto due = [&]()
                       ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return Pressed() || woken_ != woken; };
  mu_.AwaitWithTimeout(absl::Condition(&due), limit);
  return Pressed();
}

void MemoryBudget::Wake() {
  absl::MutexLock lock(&mu_);
  ++woken_;
}

}  // namespace tessera::ps

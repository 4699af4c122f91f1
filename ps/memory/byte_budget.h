#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

namespace tessera::ps {

// Counts bytes that are on their way, and bounds how many may be at once. Thread-safe.
class ByteBudget {
 public:
  // Holds bytes of the budget until it is destroyed or assigned another. Movable; must end before
  // its budget.
  class Hold {
   public:
    Hold() = default;
    Hold(Hold&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), bytes_(other.bytes_) {}
    Hold& operator=(Hold&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Hold() {
      if (budget_ != nullptr) budget_->bytes_.fetch_sub(bytes_, std::memory_order_relaxed);
    }

   private:
    friend class ByteBudget;
    Hold(ByteBudget* budget, uint64_t bytes) : budget_(budget), bytes_(bytes) {}

    ByteBudget* budget_ = nullptr;  // null: holds none
    uint64_t bytes_ = 0;
  };

  explicit ByteBudget(uint64_t max) : max_(max) {}

  // nullopt: the budget would be exceeded. An empty budget takes any number.
  std::optional<Hold> Take(uint64_t bytes) {
    uint64_t now = bytes_.load(std::memory_order_relaxed);
    do {
      if (now > 0 && (now > max_ || bytes > max_ - now)) return std::nullopt;
    } while (!bytes_.compare_exchange_weak(now, now + bytes, std::memory_order_relaxed));
    return Hold(this, bytes);
  }
  // For what must go on, whatever the bound.
  Hold TakeBeyond(uint64_t bytes) {
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
    return Hold(this, bytes);
  }
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  uint64_t max() const { return max_; }

 private:
  const uint64_t max_;
  std::atomic<uint64_t> bytes_ = 0;
};

}  // namespace tessera::ps

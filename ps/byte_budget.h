#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

namespace tessera::ps {

// Bytes that are somewhere on their way, and how many there may be at once. Thread-safe.
class ByteBudget {
 public:
  // Bytes that count until it ends, or another is put in its place. Movable; ends before its
  // budget.
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

    ByteBudget* budget_ = nullptr;  // null: none are held
    uint64_t bytes_ = 0;
  };

  explicit ByteBudget(uint64_t max) : max_(max) {}

  // None: with them there would be too many. While there are no others, any number is taken.
  std::optional<Hold> Take(uint64_t bytes) {
    uint64_t now = bytes_.load(std::memory_order_relaxed);
    do {
      if (now > 0 && (now > max_ || bytes > max_ - now)) return std::nullopt;
    } while (!bytes_.compare_exchange_weak(now, now + bytes, std::memory_order_relaxed));
    return Hold(this, bytes);
  }
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  uint64_t max() const { return max_; }

 private:
  const uint64_t max_;
  std::atomic<uint64_t> bytes_ = 0;
};

}  // namespace tessera::ps

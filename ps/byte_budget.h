#pragma once

#include <atomic>
#include <cstdint>

namespace tessera::ps {

// Bytes that are somewhere on their way, and how many there may be before new work is refused.
// Thread-safe.
class ByteBudget {
 public:
  explicit ByteBudget(uint64_t max) : max_(max) {}

  // What is under way already is finished whatever it takes; nothing new is begun above the bound.
  bool Full() const { return bytes() > max_; }
  void Add(uint64_t bytes) { bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  void Remove(uint64_t bytes) { bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  uint64_t max() const { return max_; }

 private:
  const uint64_t max_;
  std::atomic<uint64_t> bytes_ = 0;
};

}  // namespace tessera::ps

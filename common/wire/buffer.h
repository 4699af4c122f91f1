#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

#include "common/round_up.h"

namespace tessera::wire {

// Memory for blocks that cross the wire: aligned for any of them, and not zeroed. A buffer owns its
// memory, or keeps the owner of the memory alive while it lives.
class Buffer {
 public:
  static constexpr size_t kAlignment = 64;

  Buffer() = default;
  // Throws std::bad_alloc.
  explicit Buffer(size_t bytes) : size_(bytes) {
    if (bytes == 0) return;
    data_ = std::aligned_alloc(kAlignment, RoundUp(bytes, kAlignment));
    if (data_ == nullptr) throw std::bad_alloc();
  }
  // `data` is valid while `owner` lives.
  Buffer(char* data, size_t size, std::shared_ptr<void> owner)
      : data_(data), size_(size), owner_(std::move(owner)) {}
  ~Buffer() {
    if (owner_ == nullptr) std::free(data_);
  }
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        owner_(std::move(other.owner_)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(owner_, other.owner_);
    return *this;
  }

  char* data() const { return static_cast<char*>(data_); }
  size_t size() const { return size_; }
  // Hands the memory, which the buffer must own, to the caller, who frees it with std::free.
  void* Release() {
    size_ = 0;
    return std::exchange(data_, nullptr);
  }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
  std::shared_ptr<void> owner_;  // null: the buffer owns the memory
};

}  // namespace tessera::wire

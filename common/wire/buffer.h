#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

namespace tessera::wire {

// Memory for blocks that cross the wire: aligned for any of them, and not set to zero first.
class Buffer {
 public:
  static constexpr size_t kAlignment = 64;

  Buffer() = default;
  // Throws std::bad_alloc.
  explicit Buffer(size_t bytes) : size_(bytes) {
    if (bytes == 0) return;
    data_ = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    if (data_ == nullptr) throw std::bad_alloc();
  }
  ~Buffer() { std::free(data_); }
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  char* data() const { return static_cast<char*>(data_); }
  size_t size() const { return size_; }
  // The memory becomes the caller's, who ends it with std::free.
  void* Release() {
    size_ = 0;
    return std::exchange(data_, nullptr);
  }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tessera::wire

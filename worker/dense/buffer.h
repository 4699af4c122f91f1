#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

#include "common/huge_pages.h"
#include "common/round_up.h"

namespace tessera::worker {

// A fixed number of floats, zero at first, aligned for vectors; on huge pages if they fill one.
// Movable. Construction throws std::bad_alloc.
class Buffer {
 public:
  static constexpr size_t kAlignFloats = 16;  // 64 bytes

  Buffer() = default;
  explicit Buffer(size_t size)
      : data_(static_cast<float*>(Allocate(std::max<size_t>(size, 1) * sizeof(float)))),
        size_(size) {
    std::fill(data_.get(), data_.get() + size, 0.0f);
  }
  float* data() const { return data_.get(); }
  size_t size() const { return size_; }

  // `floats` rounded up to a multiple of the alignment.
  static constexpr size_t RoundUp(size_t floats) { return tessera::RoundUp(floats, kAlignFloats); }

 private:
  struct Free {
    void operator()(float* data) const { std::free(data); }
  };

  static void* Allocate(size_t bytes) {
    if (bytes >= kHugePage) return AllocateOnHugePages(bytes);
    constexpr size_t kLine = kAlignFloats * sizeof(float);
    void* const memory = std::aligned_alloc(kLine, tessera::RoundUp(bytes, kLine));
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
  }

  std::unique_ptr<float[], Free> data_;
  size_t size_ = 0;
};

}  // namespace tessera::worker

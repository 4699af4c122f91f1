#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>

#include "common/round_up.h"

namespace tessera::worker {

// A fixed number of floats, zero at first, aligned for vectors. Movable.
class Buffer {
 public:
  static constexpr size_t kAlignFloats = 16;  // 64 bytes

  Buffer() = default;
  explicit Buffer(size_t size)
      : data_(static_cast<float*>(
            ::operator new(std::max<size_t>(size, 1) * sizeof(float), std::align_val_t(64)))),
        size_(size) {
    std::fill(data_.get(), data_.get() + size, 0.0f);
  }
  float* data() const { return data_.get(); }
  size_t size() const { return size_; }

  // `floats` rounded up to a multiple of the alignment.
  static constexpr size_t RoundUp(size_t floats) { return tessera::RoundUp(floats, kAlignFloats); }

 private:
  struct Free {
    void operator()(float* data) const { ::operator delete(data, std::align_val_t(64)); }
  };
  std::unique_ptr<float[], Free> data_;
  size_t size_ = 0;
};

}  // namespace tessera::worker

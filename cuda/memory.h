#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "cuda/stream.h"

namespace tessera::cuda {

// Floats of a card, or of the machine where copies to a card are fast (pinned). Holds zeros at
// first. Freed by the destructor, which waits for the card; outlives the work that uses it.
// Movable.
class Memory {
 public:
  enum class Where { kDevice, kHost };
  Memory() = default;
  // Of the stream's card; an error is the stream's (RESOURCE_EXHAUSTED: says how much was asked
  // for), and data() null.
  Memory(Stream& stream, Where where, size_t floats);
  ~Memory();
  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept;

  float* data() const { return data_; }
  // The same, for numbers that are none.
  uint32_t* words() const { return reinterpret_cast<uint32_t*>(data_); }
  size_t size() const { return size_; }

 private:
  Where where_ = Where::kDevice;
  float* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tessera::cuda

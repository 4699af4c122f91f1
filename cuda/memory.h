#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "cuda/stream.h"

namespace tessera::cuda {

// Floats of a card, or pinned floats of the machine, which are fast to copy to a card. Holds zeros
// at first. The destructor waits for the card and frees them; Memory must outlive the work that
// uses it. Movable.
class Memory {
 public:
  enum class Where { kDevice, kHost };
  Memory() = default;
  // For the stream's card. After an error, which is the stream's (RESOURCE_EXHAUSTED says how much
  // was asked for), data() is null.
  Memory(Stream& stream, Where where, size_t floats);
  ~Memory();
  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept;

  float* data() const { return data_; }
  // The same memory as 32-bit words instead of floats.
  uint32_t* words() const { return reinterpret_cast<uint32_t*>(data_); }
  size_t size() const { return size_; }

 private:
  Where where_ = Where::kDevice;
  float* data_ = nullptr;
  size_t size_ = 0;
  std::shared_ptr<uint64_t> bytes_in_use_;  // emulated: of the stream, if it counts there
};

}  // namespace tessera::cuda

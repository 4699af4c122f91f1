#pragma once

#include <cstddef>

namespace tessera::worker {

// The length that a tensor's number stands for, between 0 and `size`; 0 for what is no number.
inline size_t SequenceLength(float length, size_t size) {
  if (!(length > 0)) return 0;
  return length < static_cast<float>(size) ? static_cast<size_t>(length) : size;
}

}  // namespace tessera::worker

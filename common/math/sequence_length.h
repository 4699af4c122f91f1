#pragma once

#include <cstddef>

#include "common/math/host_device.h"

namespace tessera::math {

// A tensor's number as a length between 0 and `size`; 0 for NaN.
TESSERA_HOST_DEVICE inline size_t SequenceLength(float length, size_t size) {
  if (!(length > 0)) return 0;
  return length < static_cast<float>(size) ? static_cast<size_t>(length) : size;
}

// How many of the first keys query number `query` attends to: the keys within the length and, if
// `causal`, none behind the query.
TESSERA_HOST_DEVICE inline size_t AttendedKeys(size_t length, size_t query, bool causal) {
  return causal && query + 1 < length ? query + 1 : length;
}

}  // namespace tessera::math

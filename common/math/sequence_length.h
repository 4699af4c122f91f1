#pragma once

#include <cstddef>

#include "common/math/host_device.h"

namespace tessera::math {

// The length that a tensor's number stands for, between 0 and `size`; 0 for what is no number.
TESSERA_HOST_DEVICE inline size_t SequenceLength(float length, size_t size) {
  if (!(length > 0)) return 0;
  return length < static_cast<float>(size) ? static_cast<size_t>(length) : size;
}

// The keys that query number `query` attends to are the first so many: those of the length, and if
// `causal` none behind the query.
TESSERA_HOST_DEVICE inline size_t AttendedKeys(size_t length, size_t query, bool causal) {
  return causal && query + 1 < length ? query + 1 : length;
}

}  // namespace tessera::math

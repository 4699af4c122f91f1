#pragma once

#include <cstdint>

#include "common/math/host_device.h"

namespace tessera::math {

// The sum of the squares of x(0) .. x(n - 1), in double and in one fixed order of lanes, so that it
// vectorises and gives the same bits everywhere.
template <typename Element>
TESSERA_HOST_DEVICE inline double SumOfSquares(uint32_t n, Element x) {
  constexpr uint32_t kLanes = 8;
  double lanes[kLanes] = {};
  uint32_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (uint32_t k = 0; k < kLanes; ++k) {
      const double value = x(i + k);
      lanes[k] += value * value;
    }
  }
  for (uint32_t k = 0; i + k < n; ++k) {
    const double value = x(i + k);
    lanes[k] += value * value;
  }
  double sum = 0;
  for (uint32_t k = 0; k < kLanes; ++k) sum += lanes[k];
  return sum;
}

}  // namespace tessera::math

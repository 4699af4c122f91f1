#pragma once

#include <algorithm>
#include <cstddef>

#include "common/math/normalization/softmax.h"
#include "worker/dense/ops/lane_sum.h"

namespace tessera::worker {

// math::Softmax of n numbers side by side, n above 0; x and y may be one array.
inline void SoftmaxRow(const float* x, size_t n, float* y) {
  const float largest = *std::max_element(x, x + n);
  for (size_t i = 0; i < n; ++i) y[i] = math::Softmax::Numerator(x[i], largest);
  const float inverse = 1 / LaneSum(n, [y](size_t i) { return y[i]; });
  for (size_t i = 0; i < n; ++i) y[i] *= inverse;
}

// dx from the softmax y and its gradient dy, which may be one array with dx.
inline void SoftmaxRowGradient(const float* __restrict y, const float* dy, size_t n, float* dx) {
  const float dot = LaneSum(n, [y, dy](size_t i) { return dy[i] * y[i]; });
  for (size_t i = 0; i < n; ++i) dx[i] = math::Softmax::Gradient(y[i], dy[i], dot);
}

}  // namespace tessera::worker

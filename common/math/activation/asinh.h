#pragma once

#include <cmath>

#include "common/math/host_device.h"

namespace tessera::math {

// Inverse hyperbolic sine: a logarithm that takes numbers of both signs; derivative 1 / sqrt(1 +
// x^2).
struct Asinh {
  struct Params {};

  TESSERA_HOST_DEVICE static float Value(const Params&, float x) { return std::asinh(x); }
  TESSERA_HOST_DEVICE static float Derivative(const Params&, float x, float) {
    return 1 / std::hypot(1.0f, x);
  }
};

}  // namespace tessera::math

#pragma once

#include <cmath>

#include "common/math/host_device.h"

namespace tessera::math {

// Square root; NaN below 0. The derivative is 1 / (2 y), and 0 at 0, where it has none: so the norm
// of a vector of zeros gives it a gradient of 0.
struct Sqrt {
  struct Params {};

  TESSERA_HOST_DEVICE static float Value(const Params&, float x) { return std::sqrt(x); }
  // Requires y = Value(params, x).
  TESSERA_HOST_DEVICE static float Derivative(const Params&, float, float y) {
    return y == 0 ? 0.0f : 0.5f / y;
  }
};

}  // namespace tessera::math

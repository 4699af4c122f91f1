#pragma once

#include <cmath>

#include "common/math/host_device.h"

namespace tessera::math {

// Square root; NaN below 0. The derivative 1 / (2 y) is infinite at 0.
struct Sqrt {
  struct Params {};

  TESSERA_HOST_DEVICE static float Value(const Params&, float x) { return std::sqrt(x); }
  // Requires y = Value(params, x).
  TESSERA_HOST_DEVICE static float Derivative(const Params&, float, float y) { return 0.5f / y; }
};

}  // namespace tessera::math

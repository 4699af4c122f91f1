#pragma once

#include <cmath>

#include "common/math/host_device.h"

namespace tessera::math {

// Absolute value; derivative 0 at 0.
struct Abs {
  struct Params {};

  TESSERA_HOST_DEVICE static float Value(const Params&, float x) { return std::fabs(x); }
  // Requires y = Value(params, x).
  TESSERA_HOST_DEVICE static float Derivative(const Params&, float x, float) {
    return x > 0 ? 1.0f : (x < 0 ? -1.0f : 0.0f);
  }
};

}  // namespace tessera::math

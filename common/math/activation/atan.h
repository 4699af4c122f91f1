#pragma once

#include <cmath>

#include "common/math/host_device.h"

namespace tessera::math {

// Arc tangent of x, in radians; derivative 1 / (1 + x^2).
struct Atan {
  struct Params {};

  TESSERA_HOST_DEVICE static float Value(const Params&, float x) { return std::atan(x); }
  TESSERA_HOST_DEVICE static float Derivative(const Params&, float x, float) {
    return 1 / (1 + x * x);
  }
};

}  // namespace tessera::math

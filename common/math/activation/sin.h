#pragma once

#include <cmath>

#include "common/math/host_device.h"

namespace tessera::math {

// Sine of x in radians; derivative cos(x).
struct Sin {
  struct Params {};

  TESSERA_HOST_DEVICE static float Value(const Params&, float x) { return std::sin(x); }
  TESSERA_HOST_DEVICE static float Derivative(const Params&, float x, float) { return std::cos(x); }
};

}  // namespace tessera::math

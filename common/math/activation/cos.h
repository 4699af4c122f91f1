#pragma once

#include <cmath>

#include "common/math/host_device.h"

namespace tessera::math {

// Cosine of x in radians; derivative -sin(x).
struct Cos {
  struct Params {};

  TESSERA_HOST_DEVICE static float Value(const Params&, float x) { return std::cos(x); }
  TESSERA_HOST_DEVICE static float Derivative(const Params&, float x, float) {
    return -std::sin(x);
  }
};

}  // namespace tessera::math

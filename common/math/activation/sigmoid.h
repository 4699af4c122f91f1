#pragma once

#include <cmath>

#include "common/math/exponential.h"
#include "common/math/host_device.h"

namespace tessera::math {

// Logistic function 1 / (1 + exp(-x)), without overflow at either end; derivative y (1 - y).
struct Sigmoid {
  struct Params {};
  static constexpr bool kFollowsLayers = true;
  static constexpr bool kDerivativeOfOutput = true;

  TESSERA_HOST_DEVICE static float Value(float x) {
    const float e = Exponential(-std::fabs(x));
    return (x >= 0 ? 1 : e) / (1 + e);
  }
  TESSERA_HOST_DEVICE static float Value(const Params&, float x) { return Value(x); }
  // Requires y = Value(params, x).
  TESSERA_HOST_DEVICE static float Derivative(const Params&, float, float y) { return y * (1 - y); }
};

}  // namespace tessera::math

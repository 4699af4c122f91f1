#pragma once

#include "common/math/exponential.h"
#include "common/math/host_device.h"

namespace tessera::math {

// Hyperbolic tangent; derivative 1 - y^2.
struct Tanh {
  struct Params {};
  static constexpr bool kFollowsLayers = true;
  static constexpr bool kDerivativeOfOutput = true;

  TESSERA_HOST_DEVICE static float Value(const Params&, float x) { return HyperbolicTangent(x); }
  // Requires y = Value(params, x).
  TESSERA_HOST_DEVICE static float Derivative(const Params&, float, float y) {
    return (1 - y) * (1 + y);
  }
};

}  // namespace tessera::math

#pragma once

#include "common/math/host_device.h"

namespace tessera::math {

// Rectified linear unit (Nair, Hinton 2010): max(x, 0); the derivative at 0 is 0. NaN stays NaN, so
// that a loss shows it; where cuBLAS rectifies a product as it writes it (cuda/dense/products.h),
// NaN becomes what cuBLAS makes of it, which its documentation leaves open.
struct Relu {
  struct Params {};
  static constexpr bool kFollowsLayers = true;
  static constexpr bool kDerivativeOfOutput = true;

  TESSERA_HOST_DEVICE static float Value(const Params&, float x) { return x <= 0 ? 0 : x; }
  // Requires y = Value(params, x).
  TESSERA_HOST_DEVICE static float Derivative(const Params&, float x, float) {
    return x > 0 ? 1 : 0;
  }
};

}  // namespace tessera::math

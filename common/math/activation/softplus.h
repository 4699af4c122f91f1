#pragma once

#include <cmath>

#include "common/math/activation/sigmoid.h"
#include "common/math/exponential.h"
#include "common/math/host_device.h"

namespace tessera::math {

// Softplus (Dugas et al. 2001): log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)); derivative
// sigmoid(x).
struct Softplus {
  struct Params {};
  static constexpr bool kFollowsLayers = true;

  TESSERA_HOST_DEVICE static float Value(const Params&, float x) {
    return std::fmax(x, 0.0f) + std::log1p(Exponential(-std::fabs(x)));
  }
  // Requires y = Value(params, x).
  TESSERA_HOST_DEVICE static float Derivative(const Params&, float x, float) {
    return Sigmoid::Value(x);
  }
};

}  // namespace tessera::math

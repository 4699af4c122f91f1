#pragma once

#include "common/math/activation/sigmoid.h"
#include "common/math/host_device.h"

namespace tessera::math {

// Sigmoid linear unit (Elfwing, Uchibe, Doya 2018, arXiv:1702.03118): x s with s = sigmoid(x);
// derivative s + y (1 - s).
struct Silu {
  struct Params {};
  static constexpr bool kFollowsLayers = true;

  TESSERA_HOST_DEVICE static float Value(const Params&, float x) { return x * Sigmoid::Value(x); }
  // Requires y = Value(params, x).
  TESSERA_HOST_DEVICE static float Derivative(const Params&, float x, float y) {
    const float s = Sigmoid::Value(x);
    return s + y * (1 - s);
  }
};

}  // namespace tessera::math

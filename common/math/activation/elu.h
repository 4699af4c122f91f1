#pragma once

#include "common/math/activation_option.h"
#include "common/math/exponential.h"
#include "common/math/host_device.h"

namespace tessera::math {

// Exponential linear unit (Clevert, Unterthiner, Hochreiter 2016, arXiv:1511.07289):
//   x where x > 0, alpha (exp(x) - 1) elsewhere.
struct Elu {
  struct Params {
    float alpha = 1;
  };
  static constexpr bool kFollowsLayers = true;
  static constexpr ActivationOption<Params> kOptions[] = {{"alpha", &Params::alpha, 0, 1e6}};

  TESSERA_HOST_DEVICE static float Value(const Params& p, float x) {
    return x > 0 ? x : p.alpha * ExpMinusOne(x);
  }
  // Requires y = Value(params, x).
  TESSERA_HOST_DEVICE static float Derivative(const Params& p, float x, float y) {
    return x > 0 ? 1 : y + p.alpha;
  }
};

}  // namespace tessera::math

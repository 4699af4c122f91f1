#pragma once

#include "common/math/activation_option.h"
#include "common/math/exponential.h"
#include "common/math/host_device.h"

namespace tessera::math {

// Scaled exponential linear unit (Klambauer et al. 2017, arXiv:1706.02515):
//   gamma x where x > 0, gamma alpha (exp(x) - 1) elsewhere.
struct Selu {
  struct Params {
    float alpha = 1.67326319217681884765625f;
    float gamma = 1.05070102214813232421875f;
  };
  static constexpr bool kFollowsLayers = true;
  static constexpr ActivationOption<Params> kOptions[] = {{"alpha", &Params::alpha, 0, 1e6},
                                                          {"gamma", &Params::gamma, 0, 1e6}};

  TESSERA_HOST_DEVICE static float Value(const Params& p, float x) {
    return p.gamma * (x > 0 ? x : p.alpha * ExpMinusOne(x));
  }
  // Requires y = Value(params, x).
  TESSERA_HOST_DEVICE static float Derivative(const Params& p, float x, float y) {
    return x > 0 ? p.gamma : y + p.gamma * p.alpha;
  }
};

}  // namespace tessera::math

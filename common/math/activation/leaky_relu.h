#pragma once

#include "common/math/activation_option.h"
#include "common/math/host_device.h"

namespace tessera::math {

// Leaky rectified linear unit (Maas, Hannun, Ng 2013): x where x > 0, slope * x elsewhere.
struct LeakyRelu {
  struct Params {
    float slope = 0.01f;
  };
  static constexpr bool kFollowsLayers = true;
  static constexpr ActivationOption<Params> kOptions[] = {{"alpha", &Params::slope, -1e6, 1e6}};

  TESSERA_HOST_DEVICE static float Value(const Params& p, float x) {
    return x > 0 ? x : p.slope * x;
  }
  // Requires y = Value(params, x).
  TESSERA_HOST_DEVICE static float Derivative(const Params& p, float x, float) {
    return x > 0 ? 1 : p.slope;
  }
};

}  // namespace tessera::math

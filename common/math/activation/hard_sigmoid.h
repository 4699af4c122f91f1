#pragma once

#include "common/math/activation_option.h"
#include "common/math/host_device.h"

namespace tessera::math {

// A sigmoid of three straight pieces (ONNX HardSigmoid): alpha x + beta, kept within [0, 1].
struct HardSigmoid {
  struct Params {
    float alpha = 0.2f;
    float beta = 0.5f;
  };
  static constexpr bool kFollowsLayers = true;
  static constexpr ActivationOption<Params> kOptions[] = {{"alpha", &Params::alpha, -1e6, 1e6},
                                                          {"beta", &Params::beta, -1e6, 1e6}};

  TESSERA_HOST_DEVICE static float Value(const Params& p, float x) {
    const float y = p.alpha * x + p.beta;
    return y < 0 ? 0.0f : (y > 1 ? 1.0f : y);  // NaN stays NaN
  }
  // Requires y = Value(params, x).
  TESSERA_HOST_DEVICE static float Derivative(const Params& p, float, float y) {
    return y > 0 && y < 1 ? p.alpha : 0.0f;
  }
};

}  // namespace tessera::math

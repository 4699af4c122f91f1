#pragma once

#include "common/math/activation_option.h"
#include "common/math/host_device.h"

namespace tessera::math {

// x kept within [min, max]; derivative 1 within, ends included, 0 outside (ONNX Clip).
struct Clip {
  struct Params {
    float min = -3.4028234663852886e38f;
    float max = 3.4028234663852886e38f;
  };
  static constexpr ActivationOption<Params> kOptions[] = {
      {"min", &Params::min, -3.4028234663852886e38, 3.4028234663852886e38},
      {"max", &Params::max, -3.4028234663852886e38, 3.4028234663852886e38}};

  TESSERA_HOST_DEVICE static float Value(const Params& p, float x) {
    return x < p.min ? p.min : (x > p.max ? p.max : x);
  }
  // Requires y = Value(params, x).
  TESSERA_HOST_DEVICE static float Derivative(const Params& p, float x, float) {
    return x >= p.min && x <= p.max ? 1.0f : 0.0f;
  }
};

}  // namespace tessera::math

#pragma once

#include <cmath>

#include "common/math/activation_option.h"
#include "common/math/host_device.h"

namespace tessera::math {

// x to a constant power p: NaN below 0 unless p is a whole number. Derivative p x^(p - 1), which is
// infinite at 0 for p < 1, but 0 everywhere for p = 0.
struct Pow {
  struct Params {
    float exponent = 1;
  };
  static constexpr ActivationOption<Params> kOptions[] = {
      {"exponent", &Params::exponent, -1e3, 1e3}};

  TESSERA_HOST_DEVICE static float Value(const Params& params, float x) {
    return std::pow(x, params.exponent);
  }
  TESSERA_HOST_DEVICE static float Derivative(const Params& params, float x, float) {
    return params.exponent == 0 ? 0 : params.exponent * std::pow(x, params.exponent - 1);
  }
};

}  // namespace tessera::math

#pragma once

#include <cmath>

#include "common/math/exponential.h"
#include "common/math/host_device.h"

namespace tessera::math {

// Error function (ONNX Erf), used by the exact Gelu; derivative 2 / sqrt(pi) exp(-x^2).
struct Erf {
  struct Params {};

  TESSERA_HOST_DEVICE static float Value(const Params&, float x) { return std::erf(x); }
  // Requires y = Value(params, x).
  TESSERA_HOST_DEVICE static float Derivative(const Params&, float x, float) {
    constexpr float kTwoByRootPi = 1.12837916709551257f;
    return kTwoByRootPi * Exponential(-x * x);
  }
};

}  // namespace tessera::math

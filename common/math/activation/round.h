#pragma once

#include <cmath>

#include "common/math/host_device.h"

namespace tessera::math {

// The nearest whole number; of two, the even one (ONNX Round). Derivative 0.
struct Round {
  struct Params {};
  static constexpr bool kHasNoGradient = true;

  TESSERA_HOST_DEVICE static float Value(const Params&, float x) { return std::rint(x); }
  TESSERA_HOST_DEVICE static float Derivative(const Params&, float, float) { return 0.0f; }
};

}  // namespace tessera::math

#pragma once

#include "common/math/host_device.h"

namespace tessera::math {

// 1 above 0, else 0: whether x > 0, as a number (ONNX Greater). Derivative 0.
struct Step {
  struct Params {};
  static constexpr bool kHasNoGradient = true;

  TESSERA_HOST_DEVICE static float Value(const Params&, float x) { return x > 0 ? 1.0f : 0.0f; }
  TESSERA_HOST_DEVICE static float Derivative(const Params&, float, float) { return 0.0f; }
};

}  // namespace tessera::math

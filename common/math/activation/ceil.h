#pragma once

#include <cmath>

#include "common/math/host_device.h"

namespace tessera::math {

// The smallest whole number that is not below x. Derivative 0.
struct Ceil {
  struct Params {};
  static constexpr bool kHasNoGradient = true;

  TESSERA_HOST_DEVICE static float Value(const Params&, float x) { return std::ceil(x); }
  TESSERA_HOST_DEVICE static float Derivative(const Params&, float, float) { return 0.0f; }
};

}  // namespace tessera::math

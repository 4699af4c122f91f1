#pragma once

#include <cmath>

#include "common/math/host_device.h"

namespace tessera::math {

// The largest whole number that is not above x. Derivative 0.
struct Floor {
  struct Params {};
  static constexpr bool kHasNoGradient = true;

  TESSERA_HOST_DEVICE static float Value(const Params&, float x) { return std::floor(x); }
  TESSERA_HOST_DEVICE static float Derivative(const Params&, float, float) { return 0.0f; }
};

}  // namespace tessera::math

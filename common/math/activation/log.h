#pragma once

#include <cmath>

#include "common/math/host_device.h"

namespace tessera::math {

// Natural logarithm; -inf at 0, NaN below.
struct Log {
  struct Params {};

  TESSERA_HOST_DEVICE static float Value(const Params&, float x) { return std::log(x); }
  // Requires y = Value(params, x).
  TESSERA_HOST_DEVICE static float Derivative(const Params&, float x, float) { return 1 / x; }
};

}  // namespace tessera::math

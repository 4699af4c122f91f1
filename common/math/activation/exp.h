#pragma once

#include "common/math/exponential.h"
#include "common/math/host_device.h"

namespace tessera::math {

// Exponential function, its own derivative.
struct Exp {
  struct Params {};

  TESSERA_HOST_DEVICE static float Value(const Params&, float x) { return Exponential(x); }
  // Requires y = Value(params, x).
  TESSERA_HOST_DEVICE static float Derivative(const Params&, float, float y) { return y; }
};

}  // namespace tessera::math

#pragma once

#include "common/math/host_device.h"

namespace tessera::math {

// y = a where the condition c is not 0 (NaN is not), else b. What is not chosen is not looked at,
// whatever it is, and has a gradient of 0, as has c.
struct Selection {
  TESSERA_HOST_DEVICE static float Value(float c, float a, float b) { return c != 0 ? a : b; }
  // By a (kOf = 1) or by b (2).
  template <int kOf>
  TESSERA_HOST_DEVICE static float Gradient(float c, float dy) {
    return (c != 0) == (kOf == 1) ? dy : 0;
  }
};

}  // namespace tessera::math

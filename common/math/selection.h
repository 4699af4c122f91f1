#pragma once

#include "common/math/host_device.h"

namespace tessera::math {

// y = a if the condition c is not 0 (NaN counts as not 0), else b. The other one does not matter,
// even if it is NaN; its gradient is 0, and so is that of c.
struct Selection {
  TESSERA_HOST_DEVICE static float Value(float c, float a, float b) { return c != 0 ? a : b; }
  // The gradient of a (kOf = 1) or of b (2).
  template <int kOf>
  TESSERA_HOST_DEVICE static float Gradient(float c, float dy) {
    return (c != 0) == (kOf == 1) ? dy : 0;
  }
};

}  // namespace tessera::math

#pragma once

#include "common/math/host_device.h"

namespace tessera::math {

// Squared error of an output x against a label y:
//   L = (x - y)^2,  dL/dx = 2 (x - y)
struct SquaredError {
  // T: float or double.
  template <typename T>
  TESSERA_HOST_DEVICE static T Value(T x, T y) {
    return (x - y) * (x - y);
  }
  template <typename T>
  TESSERA_HOST_DEVICE static T Gradient(T x, T y) {
    return 2 * (x - y);
  }
};

}  // namespace tessera::math

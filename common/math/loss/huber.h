#pragma once

#include <cmath>

#include "common/math/host_device.h"

namespace tessera::math {

// Huber's loss of an output x against a label y (Huber 1964, "Robust Estimation of a Location
// Parameter"), with e = x - y and delta above 0:
//   L = e^2 / 2                     where |e| <= delta,  dL/dx = e
//       delta (|e| - delta / 2)     beyond,              dL/dx = delta sign(e)
struct Huber {
  // T: float or double.
  template <typename T>
  TESSERA_HOST_DEVICE static T Value(T x, T y, T delta) {
    const T e = std::fabs(x - y);
    return e <= delta ? e * e / 2 : delta * (e - delta / 2);
  }
  template <typename T>
  TESSERA_HOST_DEVICE static T Gradient(T x, T y, T delta) {
    const T e = x - y;
    return e > delta ? delta : e < -delta ? -delta : e;
  }
};

}  // namespace tessera::math

#pragma once

#include "common/math/exponential.h"
#include "common/math/host_device.h"

namespace tessera::math {

// Softmax of x_1 .. x_n with the largest m = max x, which keeps exp from overflow:
//   y_s = exp(x_s - m) / sum_t exp(x_t - m);  dx_s = y_s (dy_s - sum_t dy_t y_t)
struct Softmax {
  TESSERA_HOST_DEVICE static float Numerator(float x, float largest) {
    return Exponential(x - largest);
  }
  // `dot` is sum_t dy_t y_t.
  TESSERA_HOST_DEVICE static float Gradient(float y, float dy, float dot) { return y * (dy - dot); }
};

}  // namespace tessera::math

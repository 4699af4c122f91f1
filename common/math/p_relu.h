#pragma once

#include "common/math/activation/leaky_relu.h"
#include "common/math/host_device.h"

namespace tessera::math {

// Parametric rectified linear unit (He et al. 2015, arXiv:1502.01852): LeakyRelu with a trained
// slope.
//   dx = dy f'(x);  dslope = dy min(x, 0)
struct PRelu {
  TESSERA_HOST_DEVICE static float Value(float slope, float x) {
    return LeakyRelu::Value({slope}, x);
  }
  TESSERA_HOST_DEVICE static float Gradient(float slope, float x, float dy) {
    return x > 0 ? dy : slope * dy;
  }
  TESSERA_HOST_DEVICE static float SlopeGradient(float x, float dy) { return dy * (x > 0 ? 0 : x); }
};

}  // namespace tessera::math

#pragma once

#include <cmath>

#include "common/math/host_device.h"

namespace tessera::math {

// Standardization to mean 0 and variance 1 (the part that batch and layer normalisation share),
// with inverse = 1 / sqrt(var + eps):
//   xhat = (x - mean) inverse
// Given the gradients g of all xhat:
//   dx = inverse (g - mean(g) - xhat mean(g xhat))
struct Standardization {
  TESSERA_HOST_DEVICE static float Inverse(float variance, float epsilon) {
    return 1 / std::sqrt(variance + epsilon);
  }
  TESSERA_HOST_DEVICE static float Value(float x, float mean, float inverse) {
    return (x - mean) * inverse;
  }
  // `along` times `slope` is xhat mean(g xhat), with the factor xhat in either one; `scale` is
  // inverse times any common factor of all g.
  TESSERA_HOST_DEVICE static float Gradient(float scale, float g, float mean_g, float along,
                                            float slope) {
    return scale * (g - mean_g - along * slope);
  }
  // The `slope` that belongs to along = x - mean in a batch normalisation over n rows, given
  // dweight = sum g xhat.
  TESSERA_HOST_DEVICE static float BatchSlope(float dweight, float inverse, float n) {
    return dweight * inverse / n;
  }
};

}  // namespace tessera::math

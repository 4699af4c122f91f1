#pragma once

#include <cmath>

#include "common/math/host_device.h"

namespace tessera::math {

// Gradient clipping by value: clips g to [-bound, bound].
TESSERA_HOST_DEVICE inline float ClipToValue(float g, float bound) {
  return g > bound ? bound : (g < -bound ? -bound : g);
}

// Gradient clipping by norm (Pascanu, Mikolov, Bengio 2013, "On the difficulty of training
// recurrent neural networks", algorithm 1): the factor that makes a gradient's L2 norm at most
// `bound`. The sum is double, since the square of a large float is infinite.
TESSERA_HOST_DEVICE inline float ClipFactor(double sum_of_squares, float bound) {
  const double norm = std::sqrt(sum_of_squares);
  return norm > bound ? static_cast<float>(bound / norm) : 1.0f;
}

}  // namespace tessera::math

#pragma once

#include <cmath>

#include "common/math/host_device.h"

namespace tessera::math {

// exp(x - largest), in double: a term of the sums S of SoftmaxCrossEntropy and ListwiseSoftmax,
// which may have many. At most 1.
TESSERA_HOST_DEVICE inline double ExponentialTerm(float x, float largest) {
  return std::exp(static_cast<double>(x) - largest);
}

}  // namespace tessera::math

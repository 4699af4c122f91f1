#pragma once

#include <cmath>

#include "common/math/host_device.h"

namespace tessera::math {

// Cross entropy of a Bernoulli label y in [0, 1] under the probability s(x) of a logit x, with
// s(x) = 1 / (1 + exp(-x)):
//   L = -y log s(x) - (1 - y) log s(-x) = max(x, 0) - x y + log1p(exp(-|x|))
//   dL/dx = s(x) - y = (1 - y) s(x) - y s(-x)
// The forms on the right do not overflow and, for labels of 0 and 1, do not cancel: they keep their
// relative precision where the model is nearly certain.
struct SigmoidCrossEntropy {
  // T: float or double.
  template <typename T>
  TESSERA_HOST_DEVICE static T Value(T x, T y) {
    // x (1 - y) or -x y is max(x, 0) - x y, and exactly 0 for a met label, even if x is infinite.
    const T missed = x >= 0 ? 1 - y : y;
    return (missed == 0 ? T(0) : std::fabs(x) * missed) + std::log1p(std::exp(-std::fabs(x)));
  }
  template <typename T>
  TESSERA_HOST_DEVICE static T Gradient(T x, T y) {
    const T e = std::exp(-std::fabs(x));
    const T larger = 1 / (1 + e);   // s(|x|)
    const T smaller = e / (1 + e);  // s(-|x|)
    return x >= 0 ? (1 - y) * larger - y * smaller : (1 - y) * smaller - y * larger;
  }
};

}  // namespace tessera::math

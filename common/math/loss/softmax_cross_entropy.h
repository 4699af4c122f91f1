#pragma once

#include <cmath>

#include "common/math/host_device.h"

namespace tessera::math {

// Cross entropy of several classes in nats. For logits x_1 .. x_K, largest m = max x, the label y
// and S = sum over k of exp(x_k - m):
//   L = log S - (x_y - m);  dL/dx_k = exp(x_k - m) / S - [k = y]
struct SoftmaxCrossEntropy {
  // The log probability of a class with logit x.
  template <typename T>
  TESSERA_HOST_DEVICE static T LogProbability(T x, T largest, T sum) {
    return (x - largest) - std::log(sum);
  }
  template <typename T>
  TESSERA_HOST_DEVICE static T Gradient(T x, T largest, T sum, bool is_label) {
    return std::exp(x - largest) / sum - (is_label ? T(1) : T(0));
  }
};

}  // namespace tessera::math

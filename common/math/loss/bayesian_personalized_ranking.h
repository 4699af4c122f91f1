#pragma once

#include "common/math/host_device.h"
#include "common/math/loss/sigmoid_cross_entropy.h"

namespace tessera::math {

// BPR (Rendle et al. 2009, arXiv:1205.2618, section 4, without its regularisation) of one pair of a
// positive sample with output p and a negative one with output n:
//   L = log(1 + exp(n - p)) = -log sigmoid(p - n);  dL/dn = -dL/dp = sigmoid(n - p)
struct BayesianPersonalizedRanking {
  template <typename T>
  TESSERA_HOST_DEVICE static T Value(T positive, T negative) {
    return SigmoidCrossEntropy::Value<T>(positive - negative, T(1));
  }
  // dL/dn.
  template <typename T>
  TESSERA_HOST_DEVICE static T Gradient(T positive, T negative) {
    return -SigmoidCrossEntropy::Gradient<T>(positive - negative, T(1));
  }
};

}  // namespace tessera::math

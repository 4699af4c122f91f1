#pragma once

#include <cmath>

#include "common/math/host_device.h"

namespace tessera::math {

// ListNet's top-one loss (Cao et al. 2007, section 4), with the labels themselves in place of their
// softmax. For a group with outputs x_i, labels y_i >= 0, Y = sum y_i > 0, m = max x, S = sum
// exp(x_i - m):
//   L = sum over i of -(y_i / Y) log(exp(x_i - m) / S);  dL/dx_i = exp(x_i - m) / S - y_i / Y
struct ListwiseSoftmax {
  // One sample's term; `share` is y_i / Y.
  template <typename T>
  TESSERA_HOST_DEVICE static T Term(T x, T share, T largest, T sum) {
    return share == T(0) ? T(0) : share * (std::log(sum) - (x - largest));
  }
  template <typename T>
  TESSERA_HOST_DEVICE static T Gradient(T x, T share, T largest, T sum) {
    return std::exp(x - largest) / sum - share;
  }
};

}  // namespace tessera::math

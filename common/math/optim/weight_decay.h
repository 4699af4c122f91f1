#pragma once

#include "common/math/host_device.h"

namespace tessera::math {

// Decoupled weight decay (Loshchilov, Hutter 2019, "Decoupled weight decay regularization",
// arXiv:1711.05101, algorithm 2), before an optimizer's own step:
//   w <- w - rate * lambda * w
// The gradient, with its L2 term, comes from the weight before the decay. With Adam this is AdamW.
TESSERA_HOST_DEVICE inline void DecayWeight(float rate_times_lambda, float& w) {
  w -= rate_times_lambda * w;
}

}  // namespace tessera::math

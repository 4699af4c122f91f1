#pragma once

#include "common/math/host_device.h"

namespace tessera::math {

// Gradient descent with momentum (Polyak 1964, "Some methods of speeding up the convergence of
// iteration methods"), and Nesterov's form with the gradient taken at the weight (Bengio,
// Boulanger-Lewandowski, Pascanu 2012, arXiv:1212.0901, section 3.5):
//   v <- mu v + g
//   w <- w - rate * v               plain
//   w <- w - rate * (g + mu v)      nesterov
// The rate is not part of v, so a schedule changes only later steps.
struct Momentum {
  static constexpr int kSlots = 1;  // v
  static constexpr int kRowSlots = 0;
  static constexpr bool kByWhole = false;
  struct Params {
    float rate;
    float momentum;  // mu, [0, 1)
    bool nesterov;
  };
  struct Row {};

  TESSERA_HOST_DEVICE static float InitialSlot(const Params&, int) { return 0; }
  TESSERA_HOST_DEVICE static float InitialRowSlot(const Params&, int) { return 0; }
  TESSERA_HOST_DEVICE static Row BeginRow(const Params&, float*) { return {}; }
  TESSERA_HOST_DEVICE static void Update(const Params& p, const Row&, float g, float& w, float& v) {
    v = p.momentum * v + g;
    w -= p.rate * (p.nesterov ? g + p.momentum * v : v);
  }
};

}  // namespace tessera::math

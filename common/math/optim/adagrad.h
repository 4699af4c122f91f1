#pragma once

#include <cmath>

#include "common/math/host_device.h"

namespace tessera::math {

// Adagrad (Duchi, Hazan, Singer 2011, "Adaptive subgradient methods", diagonal form), epsilon
// outside the root, with an accumulator that may decay:
//   n <- decay * n + g^2;  w <- w - rate * g / (sqrt(n) + eps)
// decay = 1 is the published form. Requires eps above 0, or decay = 1 and an initial accumulator
// above 0 (else a gradient of 0 may give 0 / 0).
struct Adagrad {
  static constexpr int kSlots = 1;  // n
  static constexpr int kRowSlots = 0;
  static constexpr bool kByWhole = false;
  struct Params {
    float rate;
    float initial_accumulator;
    float epsilon;
    float decay = 1;  // (0, 1]
  };
  struct Row {};

  TESSERA_HOST_DEVICE static float InitialSlot(const Params& p, int) {
    return p.initial_accumulator;
  }
  TESSERA_HOST_DEVICE static float InitialRowSlot(const Params&, int) { return 0; }
  TESSERA_HOST_DEVICE static Row BeginRow(const Params&, float*) { return {}; }
  TESSERA_HOST_DEVICE static void Update(const Params& p, const Row&, float g, float& w, float& n) {
    n = p.decay * n + g * g;
    w -= p.rate * g / (std::sqrt(n) + p.epsilon);
  }
};

}  // namespace tessera::math

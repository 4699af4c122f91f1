#pragma once

#include "common/math/host_device.h"

namespace tessera::math {

// Stochastic gradient descent (Robbins, Monro 1951):
//   w <- w - rate * g
struct Sgd {
  static constexpr int kSlots = 0;
  static constexpr int kRowSlots = 0;
  static constexpr bool kByWhole = false;
  struct Params {
    float rate;
  };
  struct Row {};

  TESSERA_HOST_DEVICE static float InitialSlot(const Params&, int) { return 0; }
  TESSERA_HOST_DEVICE static float InitialRowSlot(const Params&, int) { return 0; }
  TESSERA_HOST_DEVICE static Row BeginRow(const Params&, float*) { return {}; }
  TESSERA_HOST_DEVICE static void Update(const Params& p, const Row&, float g, float& w) {
    w -= p.rate * g;
  }
};

}  // namespace tessera::math

#pragma once

#include <cmath>

#include "common/math/host_device.h"

namespace tessera::math {

// RMSProp (Tieleman, Hinton 2012, "Neural networks for machine learning", lecture 6.5), epsilon
// outside the root, the mean square starting from 0 without bias correction:
//   v <- decay v + (1 - decay) g^2;  w <- w - rate * g / (sqrt(v) + eps)
struct Rmsprop {
  static constexpr int kSlots = 1;  // v
  static constexpr int kRowSlots = 0;
  static constexpr bool kByWhole = false;
  struct Params {
    float rate;
    float decay;  // [0, 1)
    float epsilon;
    float momentum;  // for RmspropMomentum
  };
  struct Row {};

  TESSERA_HOST_DEVICE static float InitialSlot(const Params&, int) { return 0; }
  TESSERA_HOST_DEVICE static float InitialRowSlot(const Params&, int) { return 0; }
  TESSERA_HOST_DEVICE static Row BeginRow(const Params&, float*) { return {}; }
  // The step of w at rate 1; updates v.
  TESSERA_HOST_DEVICE static float Direction(const Params& p, float g, float& v) {
    v = p.decay * v + (1 - p.decay) * g * g;
    return g / (std::sqrt(v) + p.epsilon);
  }
  TESSERA_HOST_DEVICE static void Update(const Params& p, const Row&, float g, float& w, float& v) {
    w -= p.rate * Direction(p, g, v);
  }
};

// RMSProp with momentum over the scaled gradient:
//   b <- mu b + g / (sqrt(v) + eps);  w <- w - rate * b
// A type of its own: without momentum a row has no b.
struct RmspropMomentum {
  static constexpr int kSlots = 2;  // v, b
  static constexpr int kRowSlots = 0;
  static constexpr bool kByWhole = false;
  using Params = Rmsprop::Params;
  using Row = Rmsprop::Row;

  TESSERA_HOST_DEVICE static float InitialSlot(const Params&, int) { return 0; }
  TESSERA_HOST_DEVICE static float InitialRowSlot(const Params&, int) { return 0; }
  TESSERA_HOST_DEVICE static Row BeginRow(const Params&, float*) { return {}; }
  TESSERA_HOST_DEVICE static void Update(const Params& p, const Row&, float g, float& w, float& v,
                                         float& b) {
    b = p.momentum * b + Rmsprop::Direction(p, g, v);
    w -= p.rate * b;
  }
};

}  // namespace tessera::math

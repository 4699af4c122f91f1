#pragma once

#include <cmath>

#include "common/math/host_device.h"

namespace tessera::math {

// Adadelta (Zeiler 2012, arXiv:1212.5701, algorithm 1), with a rate (1 in the paper):
//   v <- decay v + (1 - decay) g^2
//   d  = g * sqrt(u + eps) / sqrt(v + eps)
//   u <- decay u + (1 - decay) d^2
//   w <- w - rate * d
struct Adadelta {
  static constexpr int kSlots = 2;  // v, u
  static constexpr int kRowSlots = 0;
  static constexpr bool kByWhole = false;
  struct Params {
    float rate;
    float decay;    // [0, 1)
    float epsilon;  // above 0
  };
  struct Row {};

  TESSERA_HOST_DEVICE static float InitialSlot(const Params&, int) { return 0; }
  TESSERA_HOST_DEVICE static float InitialRowSlot(const Params&, int) { return 0; }
  TESSERA_HOST_DEVICE static Row BeginRow(const Params&, float*) { return {}; }
  TESSERA_HOST_DEVICE static void Update(const Params& p, const Row&, float g, float& w, float& v,
                                         float& u) {
    v = p.decay * v + (1 - p.decay) * g * g;
    const float d = g * std::sqrt(u + p.epsilon) / std::sqrt(v + p.epsilon);
    u = p.decay * u + (1 - p.decay) * d * d;
    w -= p.rate * d;
  }
};

}  // namespace tessera::math

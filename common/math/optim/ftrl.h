#pragma once

#include <cfloat>
#include <cmath>

#include "common/math/host_device.h"

namespace tessera::math {

// FTRL-proximal, per coordinate (McMahan et al. 2013, "Ad click prediction: a view from the
// trenches", algorithm 1), with eta = rate / (beta + sqrt(n)):
//   n' = n + g^2;  z' = z + g - (1/eta' - 1/eta) w
//   w' = 0                                        where |z'| <= l1
//        (sign(z') l1 - z') / (1/eta' + l2)       elsewhere
//
// A weight that is not 0 determines its z: z = -w (1/eta + l2) - sign(w) l1. In z' this cancels
// 1/eta:
//   d  = 1/eta' + l2
//   z' = g - w d - sign(w) l1    where w != 0
//        z + g                   where w = 0
// which is the form below. It is the published sequence while the rate is constant. When the
// schedule changes the rate, or a row starts from a weight that is not 0 with fresh slots (an
// initializer, a warm start), it goes on smoothly, while a stored z would make the weight jump.
//
// g = 0 changes nothing, nor does a rate so small that d or z' overflows float32. `l2` is FTRL's
// own term; an L2 term in the gradient is a separate option.
struct Ftrl {
  static constexpr int kSlots = 2;  // z, n
  static constexpr int kRowSlots = 0;
  static constexpr bool kByWhole = false;
  struct Params {
    float rate;  // alpha in the paper
    float beta;
    float l1;
    float l2;
  };
  struct Row {};

  TESSERA_HOST_DEVICE static float InitialSlot(const Params&, int) { return 0; }
  TESSERA_HOST_DEVICE static float InitialRowSlot(const Params&, int) { return 0; }
  TESSERA_HOST_DEVICE static Row BeginRow(const Params&, float*) { return {}; }
  TESSERA_HOST_DEVICE static void Update(const Params& p, const Row&, float g, float& w, float& z,
                                         float& n) {
    const float next_n = n + g * g;
    const float d = (p.beta + std::sqrt(next_n)) / p.rate + p.l2;
    const float next_z = (w != 0 ? -w * d - std::copysign(p.l1, w) : z) + g;
    const float next_w =
        std::fabs(next_z) <= p.l1 ? 0.0f : (std::copysign(p.l1, next_z) - next_z) / d;
    // d is 0 only with beta = l2 = 0 and a gradient whose square is 0 in float.
    const bool moves = g != 0 && d > 0 && d <= FLT_MAX && std::fabs(next_z) <= FLT_MAX;
    n = moves ? next_n : n;
    z = moves ? next_z : z;
    w = moves ? next_w : w;
  }
};

}  // namespace tessera::math

#pragma once

#include <cmath>

#include "common/math/host_device.h"
#include "common/math/optim/adam.h"

namespace tessera::math {

// LAMB (You et al. 2020, "Large batch optimization for deep learning: training BERT in 76 minutes",
// arXiv:1904.00962, algorithm 2, with phi the identity): Adam's direction, scaled to the norm of
// the weights that it moves. These are a layer's in the paper, a tensor's for dense parameters, a
// row's for embeddings. t is counted per row.
//   t <- t + 1;  m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g^2
//   r = (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps) + decay w
//   w <- w - rate * trust * r;  trust = |w| / |r| over all of these weights; 1 if either is 0
struct Lamb {
  static constexpr int kSlots = 2;     // m, v
  static constexpr int kRowSlots = 1;  // t, exact up to 2^24
  static constexpr bool kByWhole = true;
  using Params = Adam::Params;
  using Row = Adam::Row;  // with rate 1

  TESSERA_HOST_DEVICE static float InitialSlot(const Params&, int) { return 0; }
  TESSERA_HOST_DEVICE static float InitialRowSlot(const Params&, int) { return 0; }
  TESSERA_HOST_DEVICE static Row BeginRow(const Params& p, float* row_slots) {
    return Adam::BeginRow({1, p.beta1, p.beta2, p.epsilon}, row_slots);
  }
  // Returns the last result of BeginRow again.
  TESSERA_HOST_DEVICE static Row SameRow(const Params& p, const float* row_slots) {
    return Adam::RowAt({1, p.beta1, p.beta2, p.epsilon}, row_slots[0]);
  }
  // r of one element; updates m and v.
  TESSERA_HOST_DEVICE static float Direction(const Params& p, const Row& row, float decay, float g,
                                             float w, float& m, float& v) {
    m = p.beta1 * m + (1 - p.beta1) * g;
    v = p.beta2 * v + (1 - p.beta2) * g * g;
    return SameDirection(p, row, decay, w, m, v);
  }
  // r again, from the m and v that Direction left.
  TESSERA_HOST_DEVICE static float SameDirection(const Params& p, const Row& row, float decay,
                                                 float w, float m, float v) {
    return row.rate * m / (std::sqrt(v) * row.inverse_root_v + p.epsilon) + decay * w;
  }
  // The trust, from the sums of w^2 and r^2.
  TESSERA_HOST_DEVICE static float Trust(double squared_w, double squared_r) {
    return squared_w > 0 && squared_r > 0 ? static_cast<float>(std::sqrt(squared_w / squared_r))
                                          : 1.0f;
  }
};

}  // namespace tessera::math

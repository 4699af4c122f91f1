#pragma once

#include <cmath>

#include "common/math/host_device.h"

namespace tessera::math {

// Adam (Kingma, Ba 2015, arXiv:1412.6980, algorithm 1), with t per row: the number of the row's
// updates.
//   t <- t + 1;  m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g^2
//   w <- w - rate * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
struct Adam {
  static constexpr int kSlots = 2;     // m, v
  static constexpr int kRowSlots = 1;  // t, exact up to 2^24
  static constexpr bool kByWhole = false;
  struct Params {
    float rate;
    float beta1;
    float beta2;
    float epsilon;
  };
  struct Row {
    float rate;            // rate / (1 - b1^t)
    float inverse_root_v;  // 1 / sqrt(1 - b2^t)
  };

  TESSERA_HOST_DEVICE static float InitialSlot(const Params&, int) { return 0; }
  TESSERA_HOST_DEVICE static float InitialRowSlot(const Params&, int) { return 0; }
  TESSERA_HOST_DEVICE static Row BeginRow(const Params& p, float* row_slots) {
    row_slots[0] += 1;
    return RowAt(p, row_slots[0]);
  }
  // The Row of the row's update t.
  TESSERA_HOST_DEVICE static Row RowAt(const Params& p, float t) {
    // Powers in double: 1 - b2^t is small for the first steps.
    const double c1 = 1 - std::pow(static_cast<double>(p.beta1), static_cast<double>(t));
    const double c2 = 1 - std::pow(static_cast<double>(p.beta2), static_cast<double>(t));
    return {static_cast<float>(p.rate / c1), static_cast<float>(1 / std::sqrt(c2))};
  }
  TESSERA_HOST_DEVICE static void Update(const Params& p, const Row& row, float g, float& w,
                                         float& m, float& v) {
    m = p.beta1 * m + (1 - p.beta1) * g;
    v = p.beta2 * v + (1 - p.beta2) * g * g;
    w -= row.rate * m / (std::sqrt(v) * row.inverse_root_v + p.epsilon);
  }
};

}  // namespace tessera::math

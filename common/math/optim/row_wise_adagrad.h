#pragma once

#include <cmath>

#include "common/math/host_device.h"

namespace tessera::math {

// Adagrad with one accumulator per row, which adds up the mean square of the row's gradient (Naumov
// et
// al. 2019, "Deep learning recommendation model for personalization and recommendation systems",
// arXiv:1906.00091, as embedding tables are trained there):
//   n <- n + mean(g^2);  w <- w - rate * g / (sqrt(n) + eps)
// Requires eps or the initial accumulator above 0. With dim 1 it is Adagrad.
struct RowWiseAdagrad {
  static constexpr int kSlots = 0;
  static constexpr int kRowSlots = 1;  // n
  static constexpr bool kByWhole = false;
  struct Params {
    float rate;
    float initial_accumulator;
    float epsilon;
  };
  struct Row {
    float divisor;
  };

  TESSERA_HOST_DEVICE static float InitialSlot(const Params&, int) { return 0; }
  TESSERA_HOST_DEVICE static float InitialRowSlot(const Params& p, int) {
    return p.initial_accumulator;
  }
  TESSERA_HOST_DEVICE static Row BeginRow(const Params& p, float* row_slots, float mean_square) {
    const float n = (row_slots[0] += mean_square);
    return {std::sqrt(n) + p.epsilon};
  }
  TESSERA_HOST_DEVICE static void Update(const Params& p, const Row& row, float g, float& w) {
    w -= p.rate * g / row.divisor;
  }
};

}  // namespace tessera::math

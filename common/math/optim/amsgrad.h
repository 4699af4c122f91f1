#pragma once

#include <cmath>

#include "common/math/host_device.h"
#include "common/math/optim/adam.h"

namespace tessera::math {

// AMSGrad (Reddi, Kale, Kumar 2018, "On the convergence of Adam and beyond", algorithm 2), with
// Adam's bias correction, t per row:
//   t <- t + 1;  m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g^2;  u <- max(u, v)
//   w <- w - rate * (m / (1 - b1^t)) / (sqrt(u / (1 - b2^t)) + eps)
struct Amsgrad {
  static constexpr int kSlots = 3;     // m, v, u
  static constexpr int kRowSlots = 1;  // t, exact up to 2^24
  static constexpr bool kByWhole = false;
  using Params = Adam::Params;
  using Row = Adam::Row;

  TESSERA_HOST_DEVICE static float InitialSlot(const Params&, int) { return 0; }
  TESSERA_HOST_DEVICE static float InitialRowSlot(const Params&, int) { return 0; }
  TESSERA_HOST_DEVICE static Row BeginRow(const Params& p, float* row_slots) {
    return Adam::BeginRow(p, row_slots);
  }
  TESSERA_HOST_DEVICE static void Update(const Params& p, const Row& row, float g, float& w,
                                         float& m, float& v, float& u) {
    m = p.beta1 * m + (1 - p.beta1) * g;
    v = p.beta2 * v + (1 - p.beta2) * g * g;
    u = u < v ? v : u;
    w -= row.rate * m / (std::sqrt(u) * row.inverse_root_v + p.epsilon);
  }
};

}  // namespace tessera::math

#pragma once

#include "common/math/host_device.h"

namespace tessera::math {

// The second-order part of a factorization machine (Rendle 2010, lemma 3.1) for one of the floats
// of the field vectors v_f, from S = sum_f v_f and Q = sum_f v_f^2:
//   sum over f < g of v_f v_g = 1/2 (S^2 - Q);  its derivative by v_f is S - v_f
struct FactorizationMachine {
  TESSERA_HOST_DEVICE static float TwicePairs(float sum, float squares) {
    return sum * sum - squares;
  }
  TESSERA_HOST_DEVICE static float Derivative(float sum, float v) { return sum - v; }
};

}  // namespace tessera::math

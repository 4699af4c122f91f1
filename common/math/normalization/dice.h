#pragma once

#include "common/math/activation/sigmoid.h"
#include "common/math/host_device.h"

namespace tessera::math {

// Dice (Zhou et al. 2018, DIN, arXiv:1706.06978, equation 4) of x and its standardised xhat:
//   p = sigmoid(xhat);  y = p x + (1 - p) alpha x
// Its derivatives with respect to alpha; x with p constant; xhat:
//   (1 - p) x;  p + (1 - p) alpha;  x (1 - alpha) p (1 - p)
struct Dice {
  TESSERA_HOST_DEVICE static float Share(float xhat) { return Sigmoid::Value(xhat); }
  TESSERA_HOST_DEVICE static float Value(float p, float alpha, float x) {
    return Slope(p, alpha) * x;
  }
  TESSERA_HOST_DEVICE static float Slope(float p, float alpha) { return p + (1 - p) * alpha; }
  TESSERA_HOST_DEVICE static float AlphaGradient(float p, float x, float dy) {
    return dy * (1 - p) * x;
  }
  TESSERA_HOST_DEVICE static float StandardGradient(float p, float alpha, float x, float dy) {
    return dy * x * (1 - alpha) * p * (1 - p);
  }
};

}  // namespace tessera::math

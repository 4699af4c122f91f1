#pragma once

#include <cmath>

#include "common/math/exponential.h"
#include "common/math/host_device.h"

namespace tessera::math {

// Gaussian error linear unit (Hendrycks, Gimpel 2016, arXiv:1606.08415), the exact form: x F(x)
// with F and f the distribution and density of the standard normal; derivative F(x) + x f(x).
struct Gelu {
  struct Params {};
  static constexpr bool kFollowsLayers = true;

  TESSERA_HOST_DEVICE static float Value(const Params&, float x) { return x * Distribution(x); }
  // Requires y = Value(params, x).
  TESSERA_HOST_DEVICE static float Derivative(const Params&, float x, float) {
    constexpr float kInverseRootTwoPi = 0.398942280401432678f;
    return Distribution(x) + x * kInverseRootTwoPi * Exponential(-0.5f * x * x);
  }

 private:
  // Uses erfc, which keeps its precision far below 0, where 1 + erf cancels.
  TESSERA_HOST_DEVICE static float Distribution(float x) {
    constexpr float kInverseRootTwo = 0.707106781186547524f;
    return 0.5f * std::erfc(-x * kInverseRootTwo);
  }
};

}  // namespace tessera::math

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/math/host_device.h"

namespace tessera::math {

// exp(x) and functions built on it, in float32, without branches and calls: compilers vectorise
// loops over them, and the bits are the same with every C library and processor. Within 1e-7 of the
// value (HyperbolicTangent: 2e-7); exact at 0; NaN stays NaN.
//
// x = n ln 2 + r with a whole n and |r| <= ln 2 / 2, so exp(x) = 2^n (1 + q) with q = exp(r) - 1,
// which is its series up to r^7 / 7!; the error of leaving out the rest is below 6e-9 of exp(r).
struct ExpParts {
  float q;
  uint32_t n;  // modulo 2^32

  TESSERA_HOST_DEVICE static ExpParts Of(float x) {
    // Adding this to a number below 2^22 leaves the nearest whole number in the last bits.
    constexpr float kRounder = 12582912;  // 1.5 * 2^23
    constexpr float kInverseLn2 = 1.44269504088896341f;
    // ln 2 in two parts; n times the first part, which has ten bits, is exact.
    constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440054690583e-4f;
    const float rounded = x * kInverseLn2 + kRounder;
    const float n = rounded - kRounder;
    const float r = x - n * kLn2High - n * kLn2Low;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 1.0f / 2;
    return {r + r * r * p, Bits(rounded) - Bits(kRounder)};
  }
  // 2^n for n from -126 to 127.
  TESSERA_HOST_DEVICE static float PowerOfTwo(uint32_t n) {
    const uint32_t bits = (n + 127) << 23;
    float power;
    std::memcpy(&power, &bits, sizeof(power));
    return power;
  }

 private:
  TESSERA_HOST_DEVICE static uint32_t Bits(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof(bits));
    return bits;
  }
};

// Infinity above 88.7228, 0 below -103.97.
TESSERA_HOST_DEVICE inline float Exponential(float x) {
  constexpr float kLeast = -104, kMost = 89;
  x = x < kLeast ? kLeast : x;
  x = x > kMost ? kMost : x;
  const ExpParts parts = ExpParts::Of(x);
  // Multiplies in two steps, since 2^n itself may be out of float's range.
  const uint32_t half = (parts.n + 256) / 2 - 128;
  return (1 + parts.q) * ExpParts::PowerOfTwo(half) * ExpParts::PowerOfTwo(parts.n - half);
}

// exp(x) - 1, which keeps near 0 the precision that the subtraction would lose; x <= 0, or NaN.
TESSERA_HOST_DEVICE inline float ExpMinusOne(float x) {
  constexpr float kLeast = -40;  // the result is -1 below
  const ExpParts parts = ExpParts::Of(x < kLeast ? kLeast : x);
  const float power = ExpParts::PowerOfTwo(parts.n);
  return power * parts.q + (power - 1);
}

// Computed from exp(-2 |x|), which does not overflow.
TESSERA_HOST_DEVICE inline float HyperbolicTangent(float x) {
  const float e = ExpMinusOne(-2 * std::fabs(x));
  return std::copysign(e / (2 + e), x);
}

}  // namespace tessera::math

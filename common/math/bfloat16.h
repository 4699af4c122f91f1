#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/math/host_device.h"

namespace tessera::math {

// bfloat16: the upper half of a float32, so with its range and 8 bits of precision. Every bfloat16
// is exactly a float32.

TESSERA_HOST_DEVICE inline float FromBfloat16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

// The nearest bfloat16; of two as near, the even one. NaN stays NaN.
TESSERA_HOST_DEVICE inline uint16_t NearestBfloat16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const bool nan = (bits & 0x7fffffff) > 0x7f800000;
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return static_cast<uint16_t>(nan ? (bits >> 16) | 0x40 : rounded);
}

TESSERA_HOST_DEVICE inline float RoundedToBfloat16(float x) {
  return FromBfloat16(NearestBfloat16(x));
}

// Stochastic rounding to one of the two bfloat16 next to x. `draw` is uniform over its 2^16 values;
// the further one gets the probability that makes x the expected value (Gupta et al. 2015, "Deep
// learning with limited numerical precision", arXiv:1502.02551, section 3). Above the largest
// bfloat16 the result is the largest; x is finite.
TESSERA_HOST_DEVICE inline uint16_t StochasticBfloat16(float x, uint16_t draw) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const uint32_t rounded = bits + draw;
  const bool infinite = (rounded & 0x7f800000) == 0x7f800000;
  return static_cast<uint16_t>((infinite ? bits : rounded) >> 16);
}

// Convert `count` numbers; `from` and `to` do not overlap.
inline void WidenBfloat16(const uint16_t* from, size_t count, float* to) {
  for (size_t i = 0; i < count; ++i) to[i] = FromBfloat16(from[i]);
}
inline void RoundToBfloat16(const float* from, size_t count, uint16_t* to) {
  for (size_t i = 0; i < count; ++i) to[i] = NearestBfloat16(from[i]);
}

}  // namespace tessera::math

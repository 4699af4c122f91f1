#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/math/host_device.h"

namespace tessera::math {

// A float32 rounded to the nearest number of a shorter type; of two as near, to the even one. NaN
// stays NaN. (bfloat16 has a header of its own.)

// The nearest number with 24 - `bits` bits of precision and float32's exponents.
TESSERA_HOST_DEVICE inline float WithoutLowBits(float x, int bits) {
  uint32_t b;
  std::memcpy(&b, &x, sizeof(b));
  if ((b & 0x7f800000) == 0x7f800000) return x;
  const uint32_t one = 1u << bits;
  b = (b + one / 2 - 1 + ((b >> bits) & 1)) & ~(one - 1);
  std::memcpy(&x, &b, sizeof(x));
  return x;
}

// TensorFloat-32, which NVIDIA's cards multiply: the range of float32 with 11 bits of precision.
TESSERA_HOST_DEVICE inline float RoundedToTensorFloat32(float x) { return WithoutLowBits(x, 13); }

// IEEE 754's binary16: 11 bits of precision from 2^-14 up to 65504, multiples of 2^-24 below;
// from 65520 on infinity.
TESSERA_HOST_DEVICE inline float RoundedToFloat16(float x) {
  const float size = std::fabs(x);
  // Adding 1/2, whose last bit is 2^-24, rounds to a multiple of 2^-24.
  if (size < 0x1p-14f) return std::copysign(size + 0.5f - 0.5f, x);
  return size >= 65520.0f ? x * INFINITY : WithoutLowBits(x, 13);
}

}  // namespace tessera::math

#pragma once

#include <cstdint>

#include "common/math/host_device.h"

namespace tessera::cuda {

// a / b of numbers that are not negative: a card divides 32 bits several times as fast as 64.
TESSERA_HOST_DEVICE inline int64_t Quotient(int64_t a, int64_t b) {
  if (((a | b) >> 32) == 0) return static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
  return a / b;
}

}  // namespace tessera::cuda

#pragma once

#include <cstdint>

#include "common/math/host_device.h"

namespace tessera {

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number
// generators"): a bijection of 64-bit numbers whose output bits each depend on all input bits. Part
// of the data format: never change it.
TESSERA_HOST_DEVICE constexpr uint64_t Mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// Mixes two numbers; order matters: MixPair(a, b) != MixPair(b, a).
TESSERA_HOST_DEVICE constexpr uint64_t MixPair(uint64_t a, uint64_t b) {
  return Mix64(Mix64(a) ^ b);
}

}  // namespace tessera

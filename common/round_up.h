#pragma once

#include <cstdint>

namespace tessera {

// The least multiple of `to`, which is not 0, that is not below `bytes`; 0 where none is in 64
// bits.
constexpr uint64_t RoundUp(uint64_t bytes, uint64_t to) { return (bytes + to - 1) / to * to; }

}  // namespace tessera

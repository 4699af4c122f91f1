#pragma once

#include <cstdint>

namespace tessera {

// The least multiple of `to` (not 0) that is not below `value`; 0 if value + to exceeds 2^64.
constexpr uint64_t RoundUp(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

}  // namespace tessera

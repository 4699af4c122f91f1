#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// to[i] += from[i] for i below n.
void Accumulate(Stream& stream, const float* from, float* to, int64_t n);

}  // namespace tessera::cuda

#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// *sum += the sum of x[i] - x[i] for i below n: 0 where all are finite, else not a number. Uses the
// stream's scratch.
void AddNonFinite(Stream& stream, const float* x, int64_t n, float* sum);

// x[i] *= *factor for i below n.
void Multiply(Stream& stream, const float* factor, float* x, int64_t n);

}  // namespace tessera::cuda

#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// y [rows, width] = x [rows, width] + bias [width]. y may be x.
void AddBias(Stream& stream, const float* x, const float* bias, float* y, int64_t rows,
             int64_t width);

// sum [width] of dy [rows, width] over the rows. Uses the stream's scratch.
void BiasGradient(Stream& stream, const float* dy, float* sum, int64_t rows, int64_t width);

}  // namespace tessera::cuda

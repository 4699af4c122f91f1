#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// y [rows, width] = x where x > 0, else slope [width] times x. y may be x.
void PRelu(Stream& stream, const float* x, const float* slope, float* y, int64_t rows,
           int64_t width);

// dx [rows, width] = dy f'(x). dx may be dy.
void PReluGradient(Stream& stream, const float* x, const float* slope, const float* dy, float* dx,
                   int64_t rows, int64_t width);

// dslope [width] = the sum of dy min(x, 0) over the rows. Uses the stream's scratch.
void PReluSlopeGradient(Stream& stream, const float* x, const float* dy, float* dslope,
                        int64_t rows, int64_t width);

}  // namespace tessera::cuda

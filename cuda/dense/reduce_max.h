#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// y [outer, inner] = the largest of x [outer, size, inner], size at least 1.
void ReduceMax(Stream& stream, const float* x, float* y, int64_t outer, int64_t size,
               int64_t inner);

// dx [outer, size, inner] = dy [outer, inner] in the first place that holds y, 0 in the others.
void ReduceMaxGradient(Stream& stream, const float* x, const float* y, const float* dy, float* dx,
                       int64_t outer, int64_t size, int64_t inner);

}  // namespace tessera::cuda

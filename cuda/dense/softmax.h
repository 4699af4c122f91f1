#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// Both use the stream's scratch.

// Softmax along the second axis of x [outer, n, inner] (math::Softmax). y may be x.
void Softmax(Stream& stream, const float* x, float* y, int64_t outer, int64_t n, int64_t inner);

// dx from y and dy. dx may be dy.
void SoftmaxBackward(Stream& stream, const float* y, const float* dy, float* dx, int64_t outer,
                     int64_t n, int64_t inner);

}  // namespace tessera::cuda

#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// y = p x + (1 - p) alpha x (math::Dice) over the rows of x [rows, width]; mean, inverse and alpha
// are [width]. `p` [rows, width] is kept for the gradients; null: nobody needs it. y may be x.
void Dice(Stream& stream, const float* x, int64_t rows, int64_t width, const float* mean,
          const float* inverse, const float* alpha, float* y, float* p);

// dalpha [width] = the gradient of alpha, summed over the rows. Uses the stream's scratch.
void DiceAlphaGradient(Stream& stream, const float* x, int64_t rows, int64_t width, const float* p,
                       const float* dy, float* dalpha);

// dx if mean and inverse were measured over x. `room` is [2, width] and holds anything. dx may be
// dy. Uses the stream's scratch.
void DiceBackward(Stream& stream, const float* x, int64_t rows, int64_t width, const float* mean,
                  const float* inverse, const float* alpha, const float* p, const float* dy,
                  float* dx, float* room);

}  // namespace tessera::cuda

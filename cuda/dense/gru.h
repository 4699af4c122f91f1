#pragma once

#include "cuda/dense/sequences.h"
#include "cuda/stream.h"

namespace tessera::cuda {

// math::Gru over sequences. `planes` is [5, batch, places, units].
//
// From h = 0 on. The first three planes hold what the input gives the gates z, r and n, without
// bias; they then hold z, r, n, and the others u_n and the states before each place, with zeros
// behind the length. recurrence [3, units, units] and bias [2, 3, units] have the gates in that
// order. y is [batch, places, units], with zeros behind the length, or [batch, units]. Products are
// float32.
void Gru(Stream& stream, const Sequences& sequences, const float* recurrence, const float* bias,
         float* planes, float* y);

// Writes the gradients of x_z, x_r, x_n and u_n over the first four planes, and those of the
// attention to dattention [batch, places]; null: nobody needs them.
void GruBackward(Stream& stream, const Sequences& sequences, const float* recurrence, float* planes,
                 const float* dy, float* dattention);

}  // namespace tessera::cuda

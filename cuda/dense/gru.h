#pragma once

#include "cuda/dense/sequences.h"
#include "cuda/stream.h"

namespace tessera::cuda {

// math::Gru over sequences. `planes` is [5, batch, places, units]. Both use the stream's scratch.
//
// Starts from h = 0. On entry the first three planes hold the input's part of the gates z, r and n,
// without bias. Afterwards they hold z, r and n, and the other planes u_n and the state before each
// place, with zeros behind the length. recurrence [3, units, units] and bias [2, 3, units] have the
// gates in that order. y is [batch, places, units], with zeros behind the length, or [batch,
// units]. Products are float32.
void Gru(Stream& stream, const Sequences& sequences, const float* recurrence, const float* bias,
         float* planes, float* y);

// Overwrites the first four planes with the gradients of x_z, x_r, x_n and u_n, and writes the
// attention's gradients to dattention [batch, places]; null: nobody needs them.
void GruBackward(Stream& stream, const Sequences& sequences, const float* recurrence, float* planes,
                 const float* dy, float* dattention);

}  // namespace tessera::cuda

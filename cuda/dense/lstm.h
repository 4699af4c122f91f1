#pragma once

#include "cuda/dense/sequences.h"
#include "cuda/stream.h"

namespace tessera::cuda {

// math::Lstm over sequences. `planes` is [6, batch, places, units]. Both use the stream's scratch.
//
// Starts from h = 0 and m = 0. On entry the first four planes hold the input's part of the gates i,
// o, f and c, without bias. Afterwards they hold the gates, and the other planes the memory after
// each place and the state before it, with zeros behind the length. recurrence [4, units, units]
// and bias [2, 4, units] have the gates in that order. y is [batch, places, units], with zeros
// behind the length, or [batch, units]; memory [batch, units], the last one, may be null. Products
// are float32.
void Lstm(Stream& stream, const Sequences& sequences, const float* recurrence, const float* bias,
          float* planes, float* y, float* memory);

// Overwrites the gates' planes with the gradients of the gates' sums. dmemory null: it is 0.
void LstmBackward(Stream& stream, const Sequences& sequences, const float* recurrence,
                  float* planes, const float* dy, const float* dmemory);

}  // namespace tessera::cuda

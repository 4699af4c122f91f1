#pragma once

#include "cuda/dense/sequences.h"
#include "cuda/stream.h"

namespace tessera::cuda {

// math::Lstm over sequences. `planes` is [6, batch, places, units].
//
// From h = 0 and m = 0 on. The first four planes hold what the input gives the gates i, o, f and c,
// without bias; they then hold the gates, and the others the memory behind each place and the state
// before it, with zeros behind the length. recurrence [4, units, units] and bias [2, 4, units] have
// the gates in that order. y is [batch, places, units], with zeros behind the length, or [batch,
// units]; memory [batch, units], the last one, may be null. Products are float32.
void Lstm(Stream& stream, const Sequences& sequences, const float* recurrence, const float* bias,
          float* planes, float* y, float* memory);

// Writes the gradients of the gates' sums over their planes. dmemory may be null: it is 0.
void LstmBackward(Stream& stream, const Sequences& sequences, const float* recurrence,
                  float* planes, const float* dy, const float* dmemory);

}  // namespace tessera::cuda

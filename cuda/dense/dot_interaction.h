#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// Both use the stream's scratch if a sample's vectors and products are more than a block's memory
// holds (ForEachGroup of launch.h).

// The dot products of the pairs of field vectors of v [batch, fields, dim], to y [batch, pairs]:
// pairs and their order as math::FieldPair has them, with or without `self`.
void DotInteraction(Stream& stream, const float* v, float* y, int64_t batch, int64_t fields,
                    int64_t dim, bool self);

// dv from v and dy; dv may be neither.
void DotInteractionBackward(Stream& stream, const float* v, const float* dy, float* dv,
                            int64_t batch, int64_t fields, int64_t dim, bool self);

}  // namespace tessera::cuda

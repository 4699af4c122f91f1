#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// Elementwise products of the pairs of field vectors of v [batch, fields, dim], to y [batch, pairs,
// dim]: the pairs (0, 1), (0, 2), ..., (1, 2), ...
void FieldPairs(Stream& stream, const float* v, float* y, int64_t batch, int64_t fields,
                int64_t dim);

// dv from v and dy; dv may be neither.
void FieldPairsBackward(Stream& stream, const float* v, const float* dy, float* dv, int64_t batch,
                        int64_t fields, int64_t dim);

}  // namespace tessera::cuda

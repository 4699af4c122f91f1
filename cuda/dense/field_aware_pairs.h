#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// Every field has a vector of `dim` floats for each other field, in the order of the other fields:
// v [batch, fields, (fields - 1) dim]. y [batch] is the sum of the dot products of each pair's two
// vectors.
void FieldAwarePairs(Stream& stream, const float* v, float* y, int64_t batch, int64_t fields,
                     int64_t dim);

// dv from v and dy; dv may be neither.
void FieldAwarePairsBackward(Stream& stream, const float* v, const float* dy, float* dv,
                             int64_t batch, int64_t fields, int64_t dim);

}  // namespace tessera::cuda

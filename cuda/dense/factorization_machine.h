#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// The second-order part of a factorization machine for field vectors v [batch, fields, dim]
// (math::FactorizationMachine), to y [batch, 1], the sum over dim, if `over_dim`, else to y [batch,
// dim]. `sums` [batch, dim] takes the sums over the fields; null: nobody needs them.
void FactorizationMachine(Stream& stream, const float* v, float* y, float* sums, int64_t batch,
                          int64_t fields, int64_t dim, bool over_dim);

// dv from v, the sums and dy. dv may be v.
void FactorizationMachineBackward(Stream& stream, const float* v, const float* sums,
                                  const float* dy, float* dv, int64_t batch, int64_t fields,
                                  int64_t dim, bool over_dim);

}  // namespace tessera::cuda

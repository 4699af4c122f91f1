#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// z [rows, m, n] = a b^T, for each row of a [rows, m] and b [rows, n].
void OuterProducts(Stream& stream, const float* a, const float* b, float* z, int64_t rows,
                   int64_t m, int64_t n);

// From the gradients dz: da = dz b and db = dz^T a, for each row. da or db may be null: nobody
// needs it.
void OuterProductsBackward(Stream& stream, const float* a, const float* b, const float* dz,
                           float* da, float* db, int64_t rows, int64_t m, int64_t n);

}  // namespace tessera::cuda

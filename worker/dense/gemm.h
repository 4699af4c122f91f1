#pragma once

#include <cstddef>
#include <cstdint>

#include "common/task_pool.h"
#include "worker/dense/precision.h"
#include "worker/dense/prepared_product.h"

namespace tessera::worker {

// A row-major matrix as a product reads it: rows x columns after the transposition.
struct Matrix {
  const float* data;
  bool transposed = false;
};

// C [m, n] = A [m, k] * B [k, n] + addends, float32, row-major. A transposed operand lies in memory
// as its transpose. Every large product of the worker goes through here, to oneDNN or to tiles.
// Zero sizes are legal (k = 0 gives a product of zeros). With kBfloat16 the operands are rounded to
// bfloat16, except in products so thin that it would not pay, which depends on the sizes alone.
//
// C is cut into blocks of rows or columns by its sizes alone. One thread, of the pool or the
// caller's (pool null: the caller's alone), computes a block. So the same call gives the same bits
// whatever the number of threads; oneDNN's own threads would cut the sums.
void Gemm(TaskPool* pool, Precision precision, int64_t m, int64_t n, int64_t k, Matrix a, Matrix b,
          float* c, Addends addends = {});

// Gemm in one piece, in the caller's thread: for callers that already run in parallel. Blocks would
// cost them time, since an operand is packed anew for each. Bits may differ from Gemm's, so the
// choice between the two must not depend on the number of threads.
void GemmInOnePiece(Precision precision, int64_t m, int64_t n, int64_t k, Matrix a, Matrix b,
                    float* c, Addends addends = {});

}  // namespace tessera::worker

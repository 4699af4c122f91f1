#pragma once

#include <cstdint>

#include "common/task_pool.h"
#include "worker/dense/prepared_product.h"

// Products of bfloat16 numbers on the tiles of Intel's AMX, straight from float32 operands: one
// pass over an operand both rounds it and lays it out for tiles.
namespace tessera::worker {

// Whether the processor has tiles and the system lets this process use them.
bool HasTiles();

// C [m, n] = A [m, k] * B [k, n] + addends, of which at most one is set. Operands are rounded to
// bfloat16 (denormal numbers to 0), sums are float32; rows of C lie `c_stride` apart. Sizes are
// above 0. Needs HasTiles(). Thread-safe. The pool's threads share the work (null: the caller's
// alone); the bits do not depend on their number.
void MultiplyByTiles(TaskPool* pool, int64_t m, int64_t n, int64_t k, Operand<float> a,
                     Operand<float> b, float* c, int64_t c_stride, Addends addends);

}  // namespace tessera::worker

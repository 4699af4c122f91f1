#pragma once

#include <cstdint>

#include "common/task_pool.h"
#include "worker/dense/prepared_product.h"

// Products of bfloat16 numbers on the tiles of Intel's AMX, straight from float32 operands: what
// rounds them also lays them out as tiles read them, so that each is read once.
namespace tessera::worker {

// Whether the processor has tiles and the system lets this process use them.
bool HasTiles();

// C [m, n] = A [m, k] * B [k, n] + addends, one of the two at most, of operands that are rounded to
// bfloat16 (denormal numbers to 0), summed in float32; rows of C lie `c_stride` apart. Sizes above
// 0. Needs HasTiles(). Thread-safe; shared among the pool's threads (null: the caller's alone),
// with the same bits whatever their number.
void MultiplyByTiles(TaskPool* pool, int64_t m, int64_t n, int64_t k, Operand<float> a,
                     Operand<float> b, float* c, int64_t c_stride, Addends addends);

}  // namespace tessera::worker

#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "common/task_pool.h"

// Products of bfloat16 operands, on the processor's own instructions (AVX-512 BF16, AMX).
namespace tessera::worker {

// Whether the processor has them, as oneDNN sees it.
bool HasBfloat16Products();

// to[i] = from[i], rounded to the nearest bfloat16, ties to even; NaN stays NaN. Shared among the
// pool's threads (null: the caller's alone).
void RoundToBfloat16(TaskPool* pool, absl::Span<const float> from, uint16_t* to);

// A row-major matrix of bfloat16 numbers, or a block of one, as a product reads it: element (i, j)
// is data[i * row_stride + j * column_stride], one of the strides is 1.
struct Bfloat16Matrix {
  const uint16_t* data = nullptr;
  int64_t row_stride = 0;
  int64_t column_stride = 0;
};

// C [m, n] = A [m, k] * B [k, n] (+ C where `add`), sums in float32; rows of C lie `c_stride`
// apart. In the caller's thread alone. Sizes above 0; needs HasBfloat16Products(). Thread-safe.
void MultiplyBfloat16(int64_t m, int64_t n, int64_t k, Bfloat16Matrix a, Bfloat16Matrix b, float* c,
                      int64_t c_stride, bool add);

}  // namespace tessera::worker

#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "common/task_pool.h"

// Products that oneDNN prepares once for their sizes: of bfloat16 operands, by the processor's own
// instructions (AVX-512 BF16, AMX), and of float32 operands with a bias.
namespace tessera::worker {

// Whether the processor has instructions for bfloat16, as oneDNN sees it.
bool HasBfloat16Products();

// to[i] = from[i], rounded to the nearest bfloat16, ties to even; NaN stays NaN. Shared among the
// pool's threads (null: the caller's alone).
void RoundToBfloat16(TaskPool* pool, absl::Span<const float> from, uint16_t* to);

// A matrix, or a block of one, as a product reads it: element (i, j) is
// data[i * row_stride + j * column_stride], one of the strides is 1.
template <typename Number>
struct Operand {
  const Number* data = nullptr;
  int64_t row_stride = 0;
  int64_t column_stride = 0;
};

// Summands of a product.
struct Addends {
  bool c = false;               // add what C holds
  const float* bias = nullptr;  // [n], to every row of C; null: none
};

// C [m, n] = A [m, k] * B [k, n] + addends, summed in float32; rows of C lie `c_stride` apart.
// Sizes are above 0. Runs in the caller's thread. Thread-safe.
void Multiply(int64_t m, int64_t n, int64_t k, Operand<float> a, Operand<float> b, float* c,
              int64_t c_stride, Addends addends);
// Needs HasBfloat16Products().
void Multiply(int64_t m, int64_t n, int64_t k, Operand<uint16_t> a, Operand<uint16_t> b, float* c,
              int64_t c_stride, Addends addends);

}  // namespace tessera::worker

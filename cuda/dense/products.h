#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// What the float32 operands of products may be rounded to; sums are float32. With kFloat16 an
// operand beyond that type's range is infinite.
enum class Products { kFloat32, kTf32, kBfloat16, kFloat16 };

// Row-major matrices as a product reads them, `count` of them `stride` floats apart (0: the same
// one for all).
struct Matrices {
  const float* data;
  bool transposed = false;  // lie in memory as their transposes
  int64_t stride = 0;
};

// C [m, n] = alpha * A [m, k] * B [k, n] (+ C where `add`), `count` times, C's `c_stride` floats
// apart. Zero sizes are legal (k = 0 gives zeros). By cuBLAS, in one order for the same sizes.
void Gemm(Stream& stream, Products products, int64_t m, int64_t n, int64_t k, Matrices a,
          Matrices b, float* c, bool add, int64_t count = 1, int64_t c_stride = 0, float alpha = 1);

}  // namespace tessera::cuda

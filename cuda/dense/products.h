#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// What the float32 operands of products may be rounded to; sums are float32. With kFloat16 an
// operand beyond that type's range is infinite.
enum class Products { kFloat32, kTf32, kBfloat16, kFloat16 };

// Row-major matrices as a product reads them, as many as the batch has, `stride` floats apart (0:
// the same one for all).
struct Matrices {
  const float* data;
  bool transposed = false;  // lie in memory as their transposes
  int64_t stride = 0;
};

// What is written of a product's sums: alpha times each, plus what C holds (where `add`), plus the
// bias of its column; and where that is below 0 and `relu`, 0.
struct Epilogue {
  float alpha = 1;
  bool add = false;
  const float* bias = nullptr;  // [n], the same for the whole batch; null: none
  bool relu = false;
};

// Products of the same sizes: `count` of them, their C's `c_stride` floats apart.
struct ProductBatch {
  int64_t count = 1;
  int64_t c_stride = 0;
};

// C [m, n] of A [m, k] times B [k, n], row-major. Zero sizes are legal (with k = 0 all sums are 0).
// By cuBLAS, in one order for the same sizes, or with Stream::SearchProducts in that which was
// measured. C is neither A, B nor the bias. Errors are the stream's, and name the sizes.
void Gemm(Stream& stream, Products products, int64_t m, int64_t n, int64_t k, Matrices a,
          Matrices b, float* c, Epilogue epilogue = {}, ProductBatch batch = {});

}  // namespace tessera::cuda

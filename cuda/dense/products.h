#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// Floats of the card that a stream's products use while they are computed; taken with the stream.
constexpr size_t kWorkspaceFloats = 8 << 20;

// The type that float32 operands of products may be rounded to; sums are float32. With kFloat16 an
// operand beyond that type's range is infinite.
enum class Products { kFloat32, kTf32, kBfloat16, kFloat16 };

// Row-major matrices as a product reads them, one for each product of the batch, `stride` floats
// apart (0: the same matrix for all).
struct Matrices {
  const float* data;
  bool transposed = false;  // memory holds their transposes
  int64_t stride = 0;
};

// How a product's sums are written: alpha times the sum, plus what C holds if `add`, plus the bias
// of the column; with `relu` 0 in place of a negative result.
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
// Computed by cuBLAS, in one order for the same sizes, or with Stream::SearchProducts in the order
// that was fastest. C is neither A, B nor the bias. Errors are the stream's, and name the sizes.
void Gemm(Stream& stream, Products products, int64_t m, int64_t n, int64_t k, Matrices a,
          Matrices b, float* c, Epilogue epilogue = {}, ProductBatch batch = {});

}  // namespace tessera::cuda

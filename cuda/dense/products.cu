#include "cuda/dense/products.h"

#include <algorithm>

#include "common/math/activation/relu.h"
#include "cuda/launch.h"

#ifdef __CUDACC__
#include "cuda/dense/product_plans.h"
#else
#include "common/math/bfloat16.h"
#include "common/math/rounded.h"
#endif

namespace tessera::cuda {
namespace {

// Adds the bias and rectifies: `value`, of column `column`, is complete but for these two.
TESSERA_HOST_DEVICE inline float Finished(const Epilogue& epilogue, int64_t column, float value) {
  if (epilogue.bias != nullptr) value += epilogue.bias[column];
  return epilogue.relu ? math::Relu::Value({}, value) : value;
}

}  // namespace

#ifdef __CUDACC__

namespace {

// Adds biases and rectifies. C holds the sums if `written`; else the sums are zeros.
void Finish(Stream& stream, int64_t m, int64_t n, float* c, Epilogue epilogue, ProductBatch batch,
            bool written) {
  ForEachInRows(stream, "end of a product", batch.count * m, n,
                [=] TESSERA_HOST_DEVICE(int64_t row, int64_t column) {
                  float& to = c[row / m * batch.c_stride + row % m * n + column];
                  to = Finished(epilogue, column, written ? to : 0);
                });
}

}  // namespace

void Gemm(Stream& stream, Products products, int64_t m, int64_t n, int64_t k, Matrices a,
          Matrices b, float* c, Epilogue epilogue, ProductBatch batch) {
  if (!stream.status().ok() || m == 0 || n == 0) return;
  if (k == 0) return Finish(stream, m, n, c, epilogue, batch, epilogue.add);
  // Some kernels count the batch's products in a grid dimension that ends at 65535.
  constexpr int64_t kMostAtOnce = 1 << 15;
  for (int64_t begin = 0; begin < batch.count; begin += kMostAtOnce) {
    const ProductBatch some = {std::min(kMostAtOnce, batch.count - begin), batch.c_stride};
    float* const to = c + begin * batch.c_stride;
    const bool finished =
        stream.product_plans()->Run({products, m, n, k, a, b, to, epilogue, some});
    if (!finished) Finish(stream, m, n, to, epilogue, some, true);
    a.data += some.count * a.stride;
    b.data += some.count * b.stride;
  }
}

#else

namespace {

// Rounds an operand to the nearest, as cuBLAS may.
float Rounded(Products products, float x) {
  switch (products) {
    case Products::kTf32:
      return math::RoundedToTensorFloat32(x);
    case Products::kBfloat16:
      return math::RoundedToBfloat16(x);
    case Products::kFloat16:
      return math::RoundedToFloat16(x);
    default:
      return x;
  }
}

}  // namespace

void Gemm(Stream& stream, Products products, int64_t m, int64_t n, int64_t k, Matrices a,
          Matrices b, float* c, Epilogue epilogue, ProductBatch batch) {
  ForEach(stream, "product", batch.count * m * n, [=](int64_t i) {
    const int64_t product = i / (m * n), row = i / n % m, column = i % n;
    const float* const p = a.data + product * a.stride;
    const float* const q = b.data + product * b.stride;
    float sum = 0;
    for (int64_t j = 0; j < k; ++j) {
      sum += Rounded(products, a.transposed ? p[j * m + row] : p[row * k + j]) *
             Rounded(products, b.transposed ? q[column * k + j] : q[j * n + column]);
    }
    float& to = c[product * batch.c_stride + row * n + column];
    to = Finished(epilogue, column, epilogue.alpha * sum + (epilogue.add ? to : 0));
  });
}

#endif

}  // namespace tessera::cuda

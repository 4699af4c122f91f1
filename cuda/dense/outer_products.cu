#include "cuda/dense/outer_products.h"

#include "cuda/launch.h"

namespace tessera::cuda {

void OuterProducts(Stream& stream, const float* a, const float* b, float* z, int64_t rows,
                   int64_t m, int64_t n) {
  ForEachInRows(
      stream, "outer products", rows * m, n,
      [=] TESSERA_HOST_DEVICE(int64_t i, int64_t j) { z[i * n + j] = a[i] * b[i / m * n + j]; });
}

void OuterProductsBackward(Stream& stream, const float* a, const float* b, const float* dz,
                           float* da, float* db, int64_t rows, int64_t m, int64_t n) {
  const char* const what = "outer products' gradients";
  if (da != nullptr) {
    SumRows(
        stream, what, rows * m, n,
        [=] TESSERA_HOST_DEVICE(int64_t i, int64_t j) { return dz[i * n + j] * b[i / m * n + j]; },
        [=] TESSERA_HOST_DEVICE(int64_t i, float sum) { da[i] = sum; });
  }
  if (db != nullptr) {
    ForEach(stream, what, rows * n, [=] TESSERA_HOST_DEVICE(int64_t at) {
      const int64_t row = at / n;
      const float* const slopes = dz + row * m * n + at % n;
      float sum = 0;
      for (int64_t i = 0; i < m; ++i) sum += slopes[i * n] * a[row * m + i];
      db[at] = sum;
    });
  }
}

}  // namespace tessera::cuda

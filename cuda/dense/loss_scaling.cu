#include "cuda/dense/loss_scaling.h"

#include <cmath>

#include "cuda/pack.h"

namespace tessera::cuda {

void AddBeyond(Stream& stream, const float* x, int64_t n, float most, float* count) {
  const char* const what = "search for numbers that are too large";
  constexpr int64_t kColumns = 4096;
  const int64_t rows = (n + kColumns - 1) / kColumns;
  float* const of_row = stream.Scratch(static_cast<size_t>(rows));
  SumRows(
      stream, what, rows, kColumns,
      [=] TESSERA_HOST_DEVICE(int64_t row, int64_t column) {
        const int64_t i = row * kColumns + column;
        return i < n && !(std::fabs(x[i]) <= most) ? 1.0f : 0.0f;
      },
      [=] TESSERA_HOST_DEVICE(int64_t row, float value) { of_row[row] = value; });
  SumRows(
      stream, what, 1, rows, [=] TESSERA_HOST_DEVICE(int64_t, int64_t row) { return of_row[row]; },
      [=] TESSERA_HOST_DEVICE(int64_t, float value) { *count += value; });
}

void Multiply(Stream& stream, const float* factor, float* x, int64_t n) {
  Map(
      stream, "scaling of gradients", n,
      [=] TESSERA_HOST_DEVICE(int64_t, float of) { return of * *factor; }, x, x);
}

}  // namespace tessera::cuda

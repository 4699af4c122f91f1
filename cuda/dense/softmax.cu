#include "cuda/dense/softmax.h"

#include "common/math/normalization/softmax.h"
#include "cuda/launch.h"

namespace tessera::cuda {
namespace {

// Where element s of softmax `row`, one of outer * inner, lies.
TESSERA_HOST_DEVICE inline int64_t ElementOf(int64_t row, int64_t s, int64_t n, int64_t inner) {
  return (row / inner * n + s) * inner + row % inner;
}

// Which softmax the element at `at` belongs to.
TESSERA_HOST_DEVICE inline int64_t RowOf(int64_t at, int64_t n, int64_t inner) {
  return at / (n * inner) * inner + at % inner;
}

}  // namespace

void Softmax(Stream& stream, const float* x, float* y, int64_t outer, int64_t n, int64_t inner) {
  const char* const what = "softmax";
  const int64_t rows = outer * inner;
  float* const largest = stream.Scratch(2 * rows);
  float* const inverse = largest + rows;
  ReduceRows(
      stream, what, rows, n, -INFINITY,
      [=] TESSERA_HOST_DEVICE(int64_t row, int64_t s) { return x[ElementOf(row, s, n, inner)]; },
      [] TESSERA_HOST_DEVICE(float a, float b) { return a < b ? b : a; },
      [=] TESSERA_HOST_DEVICE(int64_t row, float value) { largest[row] = value; });
  SumRows(
      stream, what, rows, n,
      [=] TESSERA_HOST_DEVICE(int64_t row, int64_t s) {
        return math::Softmax::Numerator(x[ElementOf(row, s, n, inner)], largest[row]);
      },
      [=] TESSERA_HOST_DEVICE(int64_t row, float sum) { inverse[row] = 1 / sum; });
  ForEach(stream, what, rows * n, [=] TESSERA_HOST_DEVICE(int64_t at) {
    const int64_t row = RowOf(at, n, inner);
    y[at] = math::Softmax::Numerator(x[at], largest[row]) * inverse[row];
  });
}

void SoftmaxBackward(Stream& stream, const float* y, const float* dy, float* dx, int64_t outer,
                     int64_t n, int64_t inner) {
  const char* const what = "softmax's gradient";
  const int64_t rows = outer * inner;
  float* const dot = stream.Scratch(rows);
  SumRows(
      stream, what, rows, n,
      [=] TESSERA_HOST_DEVICE(int64_t row, int64_t s) {
        const int64_t at = ElementOf(row, s, n, inner);
        return dy[at] * y[at];
      },
      [=] TESSERA_HOST_DEVICE(int64_t row, float sum) { dot[row] = sum; });
  ForEach(stream, what, rows * n, [=] TESSERA_HOST_DEVICE(int64_t at) {
    dx[at] = math::Softmax::Gradient(y[at], dy[at], dot[RowOf(at, n, inner)]);
  });
}

}  // namespace tessera::cuda

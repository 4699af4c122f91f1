#include "cuda/dense/p_relu.h"

#include "common/math/p_relu.h"
#include "cuda/launch.h"

namespace tessera::cuda {

void PRelu(Stream& stream, const float* x, const float* slope, float* y, int64_t rows,
           int64_t width) {
  ForEachInRows(stream, "PRelu", rows, width, [=] TESSERA_HOST_DEVICE(int64_t row, int64_t column) {
    const int64_t i = row * width + column;
    y[i] = math::PRelu::Value(slope[column], x[i]);
  });
}

void PReluGradient(Stream& stream, const float* x, const float* slope, const float* dy, float* dx,
                   int64_t rows, int64_t width) {
  ForEachInRows(stream, "PRelu's gradient", rows, width,
                [=] TESSERA_HOST_DEVICE(int64_t row, int64_t column) {
                  const int64_t i = row * width + column;
                  dx[i] = math::PRelu::Gradient(slope[column], x[i], dy[i]);
                });
}

void PReluSlopeGradient(Stream& stream, const float* x, const float* dy, float* dslope,
                        int64_t rows, int64_t width) {
  SumColumns(
      stream, "PRelu's gradient of the slope", rows, width,
      [=] TESSERA_HOST_DEVICE(int64_t row, int64_t column) {
        const int64_t i = row * width + column;
        return math::PRelu::SlopeGradient(x[i], dy[i]);
      },
      [=] TESSERA_HOST_DEVICE(int64_t column, float sum) { dslope[column] = sum; });
}

}  // namespace tessera::cuda

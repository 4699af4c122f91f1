#include "cuda/dense/p_relu.h"

#include "common/math/activation/p_relu.h"
#include "cuda/launch.h"

namespace tessera::cuda {

void PRelu(Stream& stream, const float* x, const float* slope, float* y, int64_t rows,
           int64_t width) {
  ForEach(stream, "PRelu", rows * width, [=] TESSERA_HOST_DEVICE(int64_t i) {
    y[i] = math::PRelu::Value(slope[i % width], x[i]);
  });
}

void PReluGradient(Stream& stream, const float* x, const float* slope, const float* dy, float* dx,
                   int64_t rows, int64_t width) {
  ForEach(stream, "PRelu's gradient", rows * width, [=] TESSERA_HOST_DEVICE(int64_t i) {
    dx[i] = math::PRelu::Gradient(slope[i % width], x[i], dy[i]);
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

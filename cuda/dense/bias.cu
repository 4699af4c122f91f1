#include "cuda/dense/bias.h"

#include "cuda/launch.h"

namespace tessera::cuda {

void AddBias(Stream& stream, const float* x, const float* bias, float* y, int64_t rows,
             int64_t width) {
  ForEach(stream, "bias", rows * width,
          [=] TESSERA_HOST_DEVICE(int64_t i) { y[i] = x[i] + bias[i % width]; });
}

void BiasGradient(Stream& stream, const float* dy, float* sum, int64_t rows, int64_t width) {
  SumColumns(
      stream, "bias's gradient", rows, width,
      [=] TESSERA_HOST_DEVICE(int64_t row, int64_t column) { return dy[row * width + column]; },
      [=] TESSERA_HOST_DEVICE(int64_t column, float value) { sum[column] = value; });
}

}  // namespace tessera::cuda

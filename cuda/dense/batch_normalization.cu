#include "cuda/dense/batch_normalization.h"

#include "common/math/normalization/standardization.h"
#include "cuda/launch.h"

namespace tessera::cuda {

using math::Standardization;

void BatchNormalization(Stream& stream, const float* x, int64_t rows, int64_t width,
                        const float* mean, const float* inverse, const float* weight,
                        const float* bias, float* y) {
  ForEachInRows(stream, "batch normalisation", rows, width,
                [=] TESSERA_HOST_DEVICE(int64_t row, int64_t j) {
                  const int64_t at = row * width + j;
                  const float scale = weight == nullptr ? inverse[j] : weight[j] * inverse[j];
                  const float shift = bias == nullptr ? 0 : bias[j];
                  y[at] = Standardization::Value(x[at], mean[j], scale) + shift;
                });
}

void BatchNormalizationParameterGradients(Stream& stream, const float* x, int64_t rows,
                                          int64_t width, const float* mean, const float* inverse,
                                          const float* dy, float* dweight, float* dbias) {
  const char* const what = "batch normalisation's parameter gradients";
  SumColumns(
      stream, what, rows, width,
      [=] TESSERA_HOST_DEVICE(int64_t row, int64_t j) {
        const int64_t at = row * width + j;
        return dy[at] * (x[at] - mean[j]);
      },
      [=] TESSERA_HOST_DEVICE(int64_t j, float sum) { dweight[j] = sum * inverse[j]; });
  SumColumns(
      stream, what, rows, width,
      [=] TESSERA_HOST_DEVICE(int64_t row, int64_t j) { return dy[row * width + j]; },
      [=] TESSERA_HOST_DEVICE(int64_t j, float sum) { dbias[j] = sum; });
}

void BatchNormalizationBackward(Stream& stream, const float* x, int64_t rows, int64_t width,
                                const float* mean, const float* inverse, const float* weight,
                                const float* dweight, const float* dbias, const float* dy,
                                float* dx) {
  const float n = static_cast<float>(rows);
  ForEachInRows(stream, "batch normalisation's gradient", rows, width,
                [=] TESSERA_HOST_DEVICE(int64_t row, int64_t j) {
                  const int64_t at = row * width + j;
                  const float scale = weight == nullptr ? inverse[j] : weight[j] * inverse[j];
                  dx[at] = Standardization::Gradient(
                      scale, dy[at], dbias[j] / n, x[at] - mean[j],
                      Standardization::BatchSlope(dweight[j], inverse[j], n));
                });
}

}  // namespace tessera::cuda

#include "cuda/dense/layer_normalization.h"

#include "common/math/normalization/standardization.h"
#include "cuda/launch.h"

namespace tessera::cuda {

using math::Standardization;

void LayerNormalization(Stream& stream, const LayerNormalizationShape& shape, float epsilon,
                        const float* x, const float* weight, const float* bias, float* y,
                        float* xhat, float* inverse) {
  const char* const what = "layer normalisation";
  const int64_t width = shape.width, period = shape.period;
  const float n = static_cast<float>(width);
  float* const mean = stream.Scratch(2 * shape.rows);
  float* const inverses = inverse == nullptr ? mean + shape.rows : inverse;
  SumRows(
      stream, what, shape.rows, width,
      [=] TESSERA_HOST_DEVICE(int64_t row, int64_t j) { return x[row * width + j]; },
      [=] TESSERA_HOST_DEVICE(int64_t row, float sum) { mean[row] = sum / n; });
  SumRows(
      stream, what, shape.rows, width,
      [=] TESSERA_HOST_DEVICE(int64_t row, int64_t j) {
        const float distance = x[row * width + j] - mean[row];
        return distance * distance;
      },
      [=] TESSERA_HOST_DEVICE(int64_t row, float sum) {
        inverses[row] = Standardization::Inverse(sum / n, epsilon);
      });
  ForEachInRows(stream, what, shape.rows, width, [=] TESSERA_HOST_DEVICE(int64_t row, int64_t j) {
    const int64_t at = row * width + j, parameter = at % period;
    const float value = Standardization::Value(x[at], mean[row], inverses[row]);
    if (xhat != nullptr) xhat[at] = value;
    y[at] = value * weight[parameter] + bias[parameter];
  });
}

void LayerNormalizationParameterGradients(Stream& stream, const LayerNormalizationShape& shape,
                                          const float* xhat, const float* dy, float* dweight,
                                          float* dbias) {
  const char* const what = "layer normalisation's parameter gradients";
  const int64_t period = shape.period, periods = shape.rows * shape.width / period;
  SumColumns(
      stream, what, periods, period,
      [=] TESSERA_HOST_DEVICE(int64_t row, int64_t column) {
        const int64_t at = row * period + column;
        return dy[at] * xhat[at];
      },
      [=] TESSERA_HOST_DEVICE(int64_t column, float sum) { dweight[column] = sum; });
  SumColumns(
      stream, what, periods, period,
      [=] TESSERA_HOST_DEVICE(int64_t row, int64_t column) { return dy[row * period + column]; },
      [=] TESSERA_HOST_DEVICE(int64_t column, float sum) { dbias[column] = sum; });
}

void LayerNormalizationBackward(Stream& stream, const LayerNormalizationShape& shape,
                                const float* xhat, const float* inverse, const float* weight,
                                const float* dy, float* dx) {
  const char* const what = "layer normalisation's gradient";
  const int64_t width = shape.width, period = shape.period;
  const float n = static_cast<float>(width);
  float* const mean = stream.Scratch(2 * shape.rows);
  float* const slope = mean + shape.rows;
  SumRows(
      stream, what, shape.rows, width,
      [=] TESSERA_HOST_DEVICE(int64_t row, int64_t j) {
        const int64_t at = row * width + j;
        return dy[at] * weight[at % period];
      },
      [=] TESSERA_HOST_DEVICE(int64_t row, float sum) { mean[row] = sum / n; });
  SumRows(
      stream, what, shape.rows, width,
      [=] TESSERA_HOST_DEVICE(int64_t row, int64_t j) {
        const int64_t at = row * width + j;
        return dy[at] * weight[at % period] * xhat[at];
      },
      [=] TESSERA_HOST_DEVICE(int64_t row, float sum) { slope[row] = sum / n; });
  ForEachInRows(stream, what, shape.rows, width, [=] TESSERA_HOST_DEVICE(int64_t row, int64_t j) {
    const int64_t at = row * width + j;
    dx[at] = Standardization::Gradient(inverse[row], dy[at] * weight[at % period], mean[row],
                                       xhat[at], slope[row]);
  });
}

}  // namespace tessera::cuda

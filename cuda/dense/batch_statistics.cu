#include "cuda/dense/batch_statistics.h"

#include "common/math/normalization/running_statistics.h"
#include "common/math/normalization/standardization.h"
#include "cuda/launch.h"

namespace tessera::cuda {

void MeasureBatch(Stream& stream, const float* x, int64_t rows, int64_t width, float epsilon,
                  float* moments) {
  const char* const what = "batch statistics";
  const float n = rows == 0 ? 1 : static_cast<float>(rows);
  float *const mean = moments, *const variance = mean + width, *const inverse = variance + width;
  SumColumns(
      stream, what, rows, width,
      [=] TESSERA_HOST_DEVICE(int64_t row, int64_t column) { return x[row * width + column]; },
      [=] TESSERA_HOST_DEVICE(int64_t column, float sum) { mean[column] = sum / n; });
  SumColumns(
      stream, what, rows, width,
      [=] TESSERA_HOST_DEVICE(int64_t row, int64_t column) {
        const float distance = x[row * width + column] - mean[column];
        return distance * distance;
      },
      [=] TESSERA_HOST_DEVICE(int64_t column, float sum) {
        variance[column] = sum / n;
        inverse[column] = math::Standardization::Inverse(variance[column], epsilon);
      });
}

void InverseDeviations(Stream& stream, const float* variance, int64_t width, float epsilon,
                       float* inverse) {
  ForEach(stream, "inverse deviations", width, [=] TESSERA_HOST_DEVICE(int64_t j) {
    inverse[j] = math::Standardization::Inverse(variance[j], epsilon);
  });
}

void MovedStatistics(Stream& stream, const float* moments, int64_t rows, int64_t width,
                     float momentum, const float* running_mean, const float* running_variance,
                     float* mean_gradient, float* variance_gradient) {
  using math::RunningStatistics;
  const float n = static_cast<float>(rows);
  ForEach(stream, "running statistics", width, [=] TESSERA_HOST_DEVICE(int64_t j) {
    mean_gradient[j] = RunningStatistics::MeanStep(n, momentum, running_mean[j], moments[j]);
    variance_gradient[j] =
        RunningStatistics::VarianceStep(n, momentum, running_variance[j], moments[width + j]);
  });
}

}  // namespace tessera::cuda

#pragma once

#include "absl/types/span.h"
#include "common/math/normalization/running_statistics.h"
#include "common/math/normalization/standardization.h"
#include "cuda/dense/batch_statistics.h"
#include "worker/dense/column_sum.h"
#include "worker/dense/op.h"

namespace tessera::worker {

// Mean, biased variance and 1 / sqrt(variance + epsilon) of each column of x [rows, width].
inline void MeasureBatch(TaskPool* pool, absl::Span<const float> x, float epsilon,
                         absl::Span<float> moments)  // [3, width]
{
  const size_t width = moments.size() / 3;
  const size_t rows = x.size() / width;
  const float* __restrict in = x.data();
  float* mean = moments.data();
  float* variance = mean + width;
  float* inverse = variance + width;
  const double n = rows == 0 ? 1 : static_cast<double>(rows);
  ColumnSums<1>(
      pool, rows, width, [&](size_t at, size_t, float(&terms)[1]) { terms[0] = in[at]; },
      [&](size_t j, const double(&sums)[1]) { mean[j] = static_cast<float>(sums[0] / n); });
  const float* __restrict center = mean;
  ColumnSums<1>(
      pool, rows, width,
      [&](size_t at, size_t j, float(&terms)[1]) {
        const float d = in[at] - center[j];
        terms[0] = d * d;
      },
      [&](size_t j, const double(&sums)[1]) {
        variance[j] = static_cast<float>(sums[0] / n);
        inverse[j] = math::Standardization::Inverse(variance[j], epsilon);
      });
}

// The differences to subtract from the running mean and variance (math::RunningStatistics). Each
// worker treats its part of a batch as a batch of its own.
inline void MovedStatistics(
    absl::Span<const float> moments,  // mean, biased variance: [2 or 3, width]
    size_t rows, float momentum,
    absl::Span<const absl::Span<const float>> running,  // mean, variance
    absl::Span<const absl::Span<float>> gradients) {
  using math::RunningStatistics;
  const size_t width = running[0].size();
  const float n = static_cast<float>(rows);
  for (size_t j = 0; j < width; ++j) {
    gradients[0][j] = RunningStatistics::MeanStep(n, momentum, running[0][j], moments[j]);
    gradients[1][j] =
        RunningStatistics::VarianceStep(n, momentum, running[1][j], moments[width + j]);
  }
}

// Moments with which an op on a card standardises each column, [width] each.
struct CudaMoments {
  const float* mean;
  const float* inverse;  // of the deviation
};

// In training the batch's moments, measured into `moments` [3 * width] as MeasureBatch does. Else
// the running ones, with their inverses in the stream's scratch.
inline CudaMoments FindCudaMoments(cuda::Stream& stream, const ForwardPass& pass, size_t rows,
                                   size_t width, float epsilon, float* moments) {
  if (pass.training) {
    cuda::MeasureBatch(stream, pass.inputs[0].data(), rows, width, epsilon, moments);
    return {moments, moments + 2 * width};
  }
  float* const inverse = stream.Scratch(width);
  cuda::InverseDeviations(stream, pass.statistics[1].data(), width, epsilon, inverse);
  return {pass.statistics[0].data(), inverse};
}

}  // namespace tessera::worker

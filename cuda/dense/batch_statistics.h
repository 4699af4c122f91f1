#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// Mean, biased variance and 1 / sqrt(variance + epsilon) of each column of x [rows, width], to
// moments [3, width]. Of no rows: mean and variance 0.
void MeasureBatch(Stream& stream, const float* x, int64_t rows, int64_t width, float epsilon,
                  float* moments);

// inverse [width] = 1 / sqrt(variance + epsilon).
void InverseDeviations(Stream& stream, const float* variance, int64_t width, float epsilon,
                       float* inverse);

// What is subtracted from the running mean and variance after a batch that had these moments
// (math::RunningStatistics): gradients of both, all [width].
void MovedStatistics(Stream& stream, const float* moments, int64_t rows, int64_t width,
                     float momentum, const float* running_mean, const float* running_variance,
                     float* mean_gradient, float* variance_gradient);

}  // namespace tessera::cuda

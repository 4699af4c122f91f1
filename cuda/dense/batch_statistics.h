#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// Mean, biased variance and 1 / sqrt(variance + epsilon) of each column of x [rows, width], to
// moments [3, width]. Without rows mean and variance are 0. Uses the stream's scratch.
void MeasureBatch(Stream& stream, const float* x, int64_t rows, int64_t width, float epsilon,
                  float* moments);

// inverse [width] = 1 / sqrt(variance + epsilon).
void InverseDeviations(Stream& stream, const float* variance, int64_t width, float epsilon,
                       float* inverse);

// The differences to subtract from the running mean and variance after a batch with these moments
// (math::RunningStatistics); all [width].
void MovedStatistics(Stream& stream, const float* moments, int64_t rows, int64_t width,
                     float momentum, const float* running_mean, const float* running_variance,
                     float* mean_gradient, float* variance_gradient);

}  // namespace tessera::cuda

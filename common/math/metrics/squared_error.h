#pragma once

#include "absl/types/span.h"
#include "common/math/metrics/predictions.h"
#include "common/math/metrics/weighted_mean.h"

namespace tessera::math {

// The (weighted) mean of (prediction - label)^2; its root is the RMSE. For probabilities this is
// the Brier score (Brier 1950).
WeightedMean MeanSquaredError(const Predictions& predictions,
                              absl::Span<const float> labels,    // [n]
                              absl::Span<const float> weights);  // [n]; empty: all 1

}  // namespace tessera::math

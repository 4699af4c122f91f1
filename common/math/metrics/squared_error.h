#pragma once

#include "absl/types/span.h"
#include "common/math/metrics/predictions.h"

namespace tessera::math {

// The (weighted) mean of (prediction - label)^2; its root is the RMSE. Of probabilities it is the
// Brier score (Brier 1950). NaN where there are no samples.
double MeanSquaredError(const Predictions& predictions,
                        absl::Span<const float> labels,    // [n]
                        absl::Span<const float> weights);  // [n]; empty: all 1

}  // namespace tessera::math

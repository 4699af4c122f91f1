#pragma once

#include "absl/types/span.h"
#include "common/math/metrics/predictions.h"
#include "common/math/metrics/weighted_mean.h"

namespace tessera::math {

// The (weighted) mean of |prediction - label|.
WeightedMean MeanAbsoluteError(const Predictions& predictions,
                               absl::Span<const float> labels,    // [n]
                               absl::Span<const float> weights);  // [n]; empty: all 1

}  // namespace tessera::math

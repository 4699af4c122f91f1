#pragma once

#include "absl/types/span.h"
#include "common/math/metrics/predictions.h"

namespace tessera::math {

// The (weighted) mean of |prediction - label|. NaN where there are no samples.
double MeanAbsoluteError(const Predictions& predictions,
                         absl::Span<const float> labels,    // [n]
                         absl::Span<const float> weights);  // [n]; empty: all 1

}  // namespace tessera::math

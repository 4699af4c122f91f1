#pragma once

#include "absl/types/span.h"
#include "common/math/metrics/predictions.h"

namespace tessera::math {

// The mean of |prediction - label|. NaN where there are no samples.
double MeanAbsoluteError(const Predictions& predictions, absl::Span<const float> labels);  // [n]

}  // namespace tessera::math

#pragma once

#include "absl/types/span.h"
#include "common/math/metrics/predictions.h"

namespace tessera::math {

// The (weighted) mean prediction over the mean label (He et al. 2014, "Practical Lessons from
// Predicting Clicks on Ads at Facebook", section 3): 1 where they agree. NaN where there are no
// samples or labels add up to 0.
double Calibration(const Predictions& predictions,
                   absl::Span<const float> labels,    // [n]
                   absl::Span<const float> weights);  // [n]; empty: all 1

}  // namespace tessera::math

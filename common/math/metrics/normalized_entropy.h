#pragma once

#include "common/math/metrics/sorted_scores.h"

namespace tessera::math {

// The log loss over that of a model which always predicts the share c of positives (He et al. 2014,
// "Practical Lessons from Predicting Clicks on Ads at Facebook", section 3); below 1 is better than
// that model:
//   NE = LogLoss / -(c log c + (1 - c) log(1 - c))
// NaN where a class is missing or the log loss is NaN.
double NormalizedEntropy(const SortedScores& scores);

}  // namespace tessera::math

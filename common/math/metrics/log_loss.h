#pragma once

#include "common/math/metrics/sorted_scores.h"

namespace tessera::math {

// The mean cross entropy in nats, with s(x) = 1 / (1 + exp(-x)):
//   -(sum over positives of log s(x) + sum over negatives of log s(-x)) / n
// NaN where there are no samples or a logit is infinite.
double LogLoss(const SortedScores& scores);

}  // namespace tessera::math

#pragma once

#include "absl/types/span.h"
#include "common/math/metrics/sorted_scores.h"

namespace tessera::math {

// The (weighted) mean cross entropy in nats, with s(x) = 1 / (1 + exp(-x)):
//   -(sum over positives of log s(x) + sum over negatives of log s(-x)) / n
// NaN where there are no samples or a logit is infinite.
double LogLoss(const SortedScores& scores);
// Of several classes: the mean of -log p, p being the probability of the label's class. NaN where
// there are no samples or one is infinite.
double ClassLogLoss(absl::Span<const float> log_probabilities,  // [n]
                    absl::Span<const float> weights);           // [n]; empty: all 1

}  // namespace tessera::math

#pragma once

#include "absl/types/span.h"
#include "common/math/metrics/weighted_mean.h"

namespace tessera::math {

// The (weighted) mean cross entropy in nats, with s(x) = 1 / (1 + exp(-x)):
//   -(sum over positives of log s(x) + sum over negatives of log s(-x)) / n
// NaN if there are no samples or a sample's loss is infinite.
WeightedMean LogLoss(absl::Span<const float> logits,    // [n]
                     absl::Span<const float> labels,    // [n], above 0.5: positive
                     absl::Span<const float> weights);  // [n]; empty: all 1
// Several classes: the mean of -log p, with p the probability of the label's class. NaN if there
// are no samples or a log p is infinite.
WeightedMean ClassLogLoss(absl::Span<const float> log_probabilities,  // [n]
                          absl::Span<const float> weights);           // [n]; empty: all 1

}  // namespace tessera::math

#pragma once

#include "absl/types/span.h"
#include "common/math/metrics/weighted_mean.h"

namespace tessera::math {

// The (weighted) share of samples whose class the model predicts. Two classes: a logit of 0 or
// more, a probability of 0.5 or more, predicts positive.
WeightedMean Accuracy(absl::Span<const float> logits,    // [n], none NaN
                      absl::Span<const float> labels,    // [n], above 0.5: positive
                      absl::Span<const float> weights);  // [n]; empty: all 1
// Several classes: `classes` and `labels` are numbers of classes.
WeightedMean ClassAccuracy(absl::Span<const float> classes, absl::Span<const float> labels,
                           absl::Span<const float> weights);

}  // namespace tessera::math

#pragma once

#include "absl/types/span.h"
#include "common/math/metrics/weighted_mean.h"

namespace tessera::math {

// The (weighted) share of samples whose class the model finds. Of two classes: with a probability
// of 0.5 and above, a logit of 0 and above, read as positive.
WeightedMean Accuracy(absl::Span<const float> logits,    // [n], none NaN
                      absl::Span<const float> labels,    // [n], above 0.5: positive
                      absl::Span<const float> weights);  // [n]; empty: all 1
// Of several: `classes` and `labels` are their numbers.
WeightedMean ClassAccuracy(absl::Span<const float> classes, absl::Span<const float> labels,
                           absl::Span<const float> weights);

}  // namespace tessera::math

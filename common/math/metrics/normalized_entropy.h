#pragma once

#include "absl/types/span.h"
#include "common/math/metrics/exact_sum.h"
#include "common/math/metrics/weighted_mean.h"

namespace tessera::math {

// The log loss over that of a model which always predicts the share c of positives (He et al. 2014,
// "Practical Lessons from Predicting Clicks on Ads at Facebook", section 3); below 1 is better than
// that model:
//   NE = LogLoss / -(c log c + (1 - c) log(1 - c))
// Merging gives the value over all samples, bit for bit, whatever their order. A value type.
class NormalizedEntropy {
 public:
  void Add(absl::Span<const float> logits,    // [n]
           absl::Span<const float> labels,    // [n], above 0.5: positive
           absl::Span<const float> weights);  // [n]; empty: all 1
  void Merge(const NormalizedEntropy& other);
  // NaN if a class is missing or the log loss is NaN.
  double value() const;

 private:
  WeightedMean loss_;
  ExactSum positives_;
  ExactSum negatives_;
};

}  // namespace tessera::math

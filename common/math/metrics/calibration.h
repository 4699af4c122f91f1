#pragma once

#include "absl/types/span.h"
#include "common/math/metrics/exact_sum.h"
#include "common/math/metrics/predictions.h"

namespace tessera::math {

// The (weighted) mean prediction over the mean label (He et al. 2014, "Practical Lessons from
// Predicting Clicks on Ads at Facebook", section 3): 1 if they agree. Merging gives the value over
// all samples, bit for bit, whatever their order. A value type.
class Calibration {
 public:
  void Add(const Predictions& predictions,
           absl::Span<const float> labels,    // [n]
           absl::Span<const float> weights);  // [n]; empty: all 1
  void Merge(const Calibration& other);
  // NaN if there are no samples or the labels add up to 0.
  double value() const;

 private:
  ExactSum predicted_;
  ExactSum observed_;
};

}  // namespace tessera::math

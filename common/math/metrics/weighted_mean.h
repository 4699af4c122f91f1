#pragma once

#include <cmath>
#include <cstddef>
#include <limits>

#include "absl/types/span.h"
#include "common/math/metrics/exact_sum.h"

namespace tessera::math {

// The sum of w_i term_i over the sum of w_i. Merging gives the mean over all samples, bit for bit,
// whatever their order. A value type.
class WeightedMean {
 public:
  void Add(double term, double weight) {
    sum_.Add(weight * term);
    weights_.Add(weight);
  }
  void Merge(const WeightedMean& other) {
    sum_.Merge(other.sum_);
    weights_.Merge(other.weights_);
  }
  // NaN if the weights add up to 0 or the sum of the terms is not finite.
  double value() const {
    const double sum = sum_.value(), weights = weights_.value();
    return weights > 0 && std::isfinite(sum) ? sum / weights
                                             : std::numeric_limits<double>::quiet_NaN();
  }

 private:
  ExactSum sum_;
  ExactSum weights_;
};

// The weighted mean of term(i) for i in [0, n); all w_i are 1 if `weights` is empty.
template <typename Term>
WeightedMean MeanOf(size_t n, absl::Span<const float> weights, Term term) {
  WeightedMean mean;
  for (size_t i = 0; i < n; ++i) mean.Add(term(i), weights.empty() ? 1.0 : weights[i]);
  return mean;
}

}  // namespace tessera::math

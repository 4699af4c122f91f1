#pragma once

#include <cstddef>
#include <limits>

#include "absl/types/span.h"
#include "common/math/metrics/compensated_sum.h"

namespace tessera::math {

// sum of w_i term(i) over sum of w_i, for i in [0, n), all w_i 1 where `weights` is empty. NaN
// where the weights add up to 0.
template <typename Term>
double WeightedMean(size_t n, absl::Span<const float> weights, Term term) {
  CompensatedSum sum, total;
  for (size_t i = 0; i < n; ++i) {
    const double weight = weights.empty() ? 1.0 : weights[i];
    sum.Add(weight * term(i));
    total.Add(weight);
  }
  return total.value() > 0 ? sum.value() / total.value() : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace tessera::math

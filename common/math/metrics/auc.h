#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "common/math/metrics/sorted_scores.h"

namespace tessera::math {

// The probability that a positive sample's logit is above a negative one's, ties counting half
// (Mann, Whitney 1947):
//   AUC = sum over pairs (p, n) of ([x_p > x_n] + [x_p = x_n] / 2) / (positives * negatives)
// Counted in integers, hence exact (without weights). NaN if a class is missing.
double Auc(const SortedScores& scores);

// Twice the number of (positive, negative) pairs in which the positive is above, ties counting one.
// Requires keys in ascending order.
unsigned __int128 TwiceOrderedPairs(absl::Span<const uint32_t> positives,
                                    absl::Span<const uint32_t> negatives);

}  // namespace tessera::math

#include "common/math/metrics/auc.h"

#include <cstddef>
#include <limits>
#include <vector>

#include "common/math/metrics/compensated_sum.h"

namespace tessera::math {
namespace {

// Auc with weights: a pair counts as the product of its samples' weights.
double WeightedAuc(const SortedScores& scores) {
  const std::vector<uint32_t>& negatives = scores.negatives;
  size_t below = 0, not_above = 0;
  CompensatedSum weight_below, weight_not_above, pairs, positive, negative;
  for (const float weight : scores.negative_weights) negative.Add(weight);
  for (size_t i = 0; i < scores.positives.size(); ++i) {
    const uint32_t key = scores.positives[i];
    for (; below < negatives.size() && negatives[below] < key; ++below) {
      weight_below.Add(scores.negative_weights[below]);
    }
    for (; not_above < negatives.size() && negatives[not_above] <= key; ++not_above) {
      weight_not_above.Add(scores.negative_weights[not_above]);
    }
    const double weight = scores.positive_weights[i];
    pairs.Add(weight * (weight_below.value() + weight_not_above.value()) / 2);
    positive.Add(weight);
  }
  const double all = positive.value() * negative.value();
  return all > 0 ? pairs.value() / all : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

unsigned __int128 TwiceOrderedPairs(absl::Span<const uint32_t> positives,
                                    absl::Span<const uint32_t> negatives) {
  unsigned __int128 twice = 0;
  size_t below = 0, not_above = 0;
  for (uint32_t key : positives) {
    while (below < negatives.size() && negatives[below] < key) ++below;
    while (not_above < negatives.size() && negatives[not_above] <= key) ++not_above;
    twice += below + not_above;
  }
  return twice;
}

double Auc(const SortedScores& scores) {
  if (scores.positives.empty() || scores.negatives.empty()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (scores.weighted()) return WeightedAuc(scores);
  const unsigned __int128 twice_pairs =
      static_cast<unsigned __int128>(2 * scores.positives.size()) * scores.negatives.size();
  return static_cast<double>(TwiceOrderedPairs(scores.positives, scores.negatives)) /
         static_cast<double>(twice_pairs);
}

}  // namespace tessera::math

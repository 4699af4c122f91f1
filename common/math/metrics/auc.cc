#include "common/math/metrics/auc.h"

#include <cstddef>
#include <limits>
#include <vector>

namespace tessera::math {
namespace {

// Twice the number of (positive, negative) pairs in which the positive is above, ties counting one.
// Both sorted.
unsigned __int128 TwiceOrderedPairs(const std::vector<uint32_t>& positives,
                                    const std::vector<uint32_t>& negatives) {
  unsigned __int128 twice = 0;
  size_t below = 0, not_above = 0;
  for (uint32_t key : positives) {
    while (below < negatives.size() && negatives[below] < key) ++below;
    while (not_above < negatives.size() && negatives[not_above] <= key) ++not_above;
    twice += below + not_above;
  }
  return twice;
}

}  // namespace

double Auc(const SortedScores& scores) {
  if (scores.positives.empty() || scores.negatives.empty()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const unsigned __int128 twice_pairs =
      static_cast<unsigned __int128>(2 * scores.positives.size()) * scores.negatives.size();
  return static_cast<double>(TwiceOrderedPairs(scores.positives, scores.negatives)) /
         static_cast<double>(twice_pairs);
}

}  // namespace tessera::math

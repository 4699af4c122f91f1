#include "common/math/metrics/average_precision.h"

#include <cstddef>
#include <limits>

#include "common/math/metrics/compensated_sum.h"

namespace tessera::math {

double AveragePrecision(const SortedScores& scores) {
  const std::vector<uint32_t>& positives = scores.positives;
  const std::vector<uint32_t>& negatives = scores.negatives;
  if (positives.empty() || negatives.empty()) return std::numeric_limits<double>::quiet_NaN();
  CompensatedSum sum;
  size_t p = positives.size(), n = negatives.size();  // those below the logit
  while (p > 0) {
    const uint32_t logit = positives[p - 1];
    const size_t before = p;
    while (p > 0 && positives[p - 1] == logit) --p;
    while (n > 0 && negatives[n - 1] >= logit) --n;
    const double found = static_cast<double>(positives.size() - p);
    const double named = found + static_cast<double>(negatives.size() - n);
    sum.Add(static_cast<double>(before - p) * (found / named));
  }
  return sum.value() / static_cast<double>(positives.size());
}

}  // namespace tessera::math

#include "common/math/metrics/normalized_entropy.h"

#include <cmath>
#include <limits>

#include "common/math/metrics/log_loss.h"

namespace tessera::math {

double NormalizedEntropy(const SortedScores& scores) {
  if (scores.positives.empty() || scores.negatives.empty()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const double n = static_cast<double>(scores.samples());
  const double positive = static_cast<double>(scores.positives.size()) / n;
  const double negative = static_cast<double>(scores.negatives.size()) / n;
  const double entropy = -(positive * std::log(positive) + negative * std::log(negative));
  return LogLoss(scores) / entropy;
}

}  // namespace tessera::math

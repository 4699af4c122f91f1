#include "common/math/metrics/normalized_entropy.h"

#include <cmath>
#include <limits>

#include "common/math/metrics/compensated_sum.h"
#include "common/math/metrics/log_loss.h"

namespace tessera::math {

double NormalizedEntropy(const SortedScores& scores) {
  if (scores.positives.empty() || scores.negatives.empty()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const auto total = [](const std::vector<uint32_t>& keys, const std::vector<float>& weights) {
    CompensatedSum sum;
    for (const float weight : weights) sum.Add(weight);
    return weights.empty() ? static_cast<double>(keys.size()) : sum.value();
  };
  const double positives = total(scores.positives, scores.positive_weights);
  const double negatives = total(scores.negatives, scores.negative_weights);
  if (!(positives > 0 && negatives > 0)) return std::numeric_limits<double>::quiet_NaN();
  const double positive = positives / (positives + negatives);
  const double negative = negatives / (positives + negatives);
  const double entropy = -(positive * std::log(positive) + negative * std::log(negative));
  return LogLoss(scores) / entropy;
}

}  // namespace tessera::math

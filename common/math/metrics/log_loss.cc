#include "common/math/metrics/log_loss.h"

#include <cmath>
#include <limits>

#include "common/math/loss/sigmoid_cross_entropy.h"
#include "common/math/metrics/compensated_sum.h"
#include "common/math/metrics/weighted_mean.h"

namespace tessera::math {

double LogLoss(const SortedScores& scores) {
  CompensatedSum loss, weights;
  const auto add = [&](const std::vector<uint32_t>& keys, const std::vector<float>& of,
                       float label) {
    for (size_t i = 0; i < keys.size(); ++i) {
      const double weight = of.empty() ? 1.0 : of[i];
      loss.Add(weight * SigmoidCrossEntropy::Value<double>(SortedScores::Logit(keys[i]), label));
      weights.Add(weight);
    }
  };
  add(scores.positives, scores.positive_weights, 1);
  add(scores.negatives, scores.negative_weights, 0);
  if (!(weights.value() > 0) || !std::isfinite(loss.value())) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return loss.value() / weights.value();
}

double ClassLogLoss(absl::Span<const float> log_probabilities, absl::Span<const float> weights) {
  const double mean = WeightedMean(log_probabilities.size(), weights,
                                   [&](size_t i) { return -log_probabilities[i]; });
  return std::isfinite(mean) ? mean : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace tessera::math

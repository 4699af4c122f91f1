#include "common/math/metrics/average_precision.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "common/math/metrics/compensated_sum.h"

namespace tessera::math {
namespace {

bool WeighsAnything(const std::vector<uint32_t>& samples, const std::vector<float>& weights) {
  if (weights.empty()) return !samples.empty();
  return std::any_of(weights.begin(), weights.end(), [](float weight) { return weight > 0; });
}

}  // namespace

double AveragePrecision(const SortedScores& scores) {
  const std::vector<uint32_t>& positives = scores.positives;
  const std::vector<uint32_t>& negatives = scores.negatives;
  if (!WeighsAnything(positives, scores.positive_weights) ||
      !WeighsAnything(negatives, scores.negative_weights)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  CompensatedSum sum, found, named;
  const auto weight = [](const std::vector<float>& weights, size_t i) {
    return weights.empty() ? 1.0 : static_cast<double>(weights[i]);
  };
  size_t p = positives.size(), n = negatives.size();  // how many lie below the logit
  while (p > 0) {
    const uint32_t logit = positives[p - 1];
    const double before = found.value();
    for (; p > 0 && positives[p - 1] == logit; --p) {
      found.Add(weight(scores.positive_weights, p - 1));
      named.Add(weight(scores.positive_weights, p - 1));
    }
    for (; n > 0 && negatives[n - 1] >= logit; --n) {
      named.Add(weight(scores.negative_weights, n - 1));
    }
    if (named.value() > 0) sum.Add((found.value() - before) * (found.value() / named.value()));
  }
  return sum.value() / found.value();
}

}  // namespace tessera::math

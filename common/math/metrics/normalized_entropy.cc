#include "common/math/metrics/normalized_entropy.h"

#include <cmath>
#include <cstddef>
#include <limits>

#include "common/math/metrics/log_loss.h"

namespace tessera::math {

void NormalizedEntropy::Add(absl::Span<const float> logits, absl::Span<const float> labels,
                            absl::Span<const float> weights) {
  loss_.Merge(LogLoss(logits, labels, weights));
  for (size_t i = 0; i < labels.size(); ++i) {
    (labels[i] > 0.5f ? positives_ : negatives_).Add(weights.empty() ? 1.0 : weights[i]);
  }
}

void NormalizedEntropy::Merge(const NormalizedEntropy& other) {
  loss_.Merge(other.loss_);
  positives_.Merge(other.positives_);
  negatives_.Merge(other.negatives_);
}

double NormalizedEntropy::value() const {
  const double positives = positives_.value(), negatives = negatives_.value();
  if (!(positives > 0 && negatives > 0)) return std::numeric_limits<double>::quiet_NaN();
  const double positive = positives / (positives + negatives);
  const double negative = negatives / (positives + negatives);
  const double entropy = -(positive * std::log(positive) + negative * std::log(negative));
  return loss_.value() / entropy;
}

}  // namespace tessera::math

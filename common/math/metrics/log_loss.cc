#include "common/math/metrics/log_loss.h"

#include <cstddef>

#include "common/math/loss/sigmoid_cross_entropy.h"

namespace tessera::math {

WeightedMean LogLoss(absl::Span<const float> logits, absl::Span<const float> labels,
                     absl::Span<const float> weights) {
  return MeanOf(logits.size(), weights, [&](size_t i) {
    return SigmoidCrossEntropy::Value<double>(logits[i], labels[i] > 0.5f ? 1 : 0);
  });
}

WeightedMean ClassLogLoss(absl::Span<const float> log_probabilities,
                          absl::Span<const float> weights) {
  return MeanOf(log_probabilities.size(), weights, [&](size_t i) { return -log_probabilities[i]; });
}

}  // namespace tessera::math

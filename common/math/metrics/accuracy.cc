#include "common/math/metrics/accuracy.h"

#include <cstddef>

#include "common/math/metrics/weighted_mean.h"

namespace tessera::math {

double Accuracy(absl::Span<const float> logits, absl::Span<const float> labels,
                absl::Span<const float> weights) {
  return WeightedMean(logits.size(), weights,
                      [&](size_t i) { return (logits[i] >= 0) == (labels[i] > 0.5f) ? 1.0 : 0.0; });
}

double ClassAccuracy(absl::Span<const float> classes, absl::Span<const float> labels,
                     absl::Span<const float> weights) {
  return WeightedMean(classes.size(), weights,
                      [&](size_t i) { return classes[i] == labels[i] ? 1.0 : 0.0; });
}

}  // namespace tessera::math

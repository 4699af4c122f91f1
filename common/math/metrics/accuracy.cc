#include "common/math/metrics/accuracy.h"

#include <cstddef>

namespace tessera::math {

WeightedMean Accuracy(absl::Span<const float> logits, absl::Span<const float> labels,
                      absl::Span<const float> weights) {
  return MeanOf(logits.size(), weights,
                [&](size_t i) { return (logits[i] >= 0) == (labels[i] > 0.5f) ? 1.0 : 0.0; });
}

WeightedMean ClassAccuracy(absl::Span<const float> classes, absl::Span<const float> labels,
                           absl::Span<const float> weights) {
  return MeanOf(classes.size(), weights,
                [&](size_t i) { return classes[i] == labels[i] ? 1.0 : 0.0; });
}

}  // namespace tessera::math

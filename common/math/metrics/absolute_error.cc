#include "common/math/metrics/absolute_error.h"

#include <cmath>
#include <cstddef>

namespace tessera::math {

WeightedMean MeanAbsoluteError(const Predictions& predictions, absl::Span<const float> labels,
                               absl::Span<const float> weights) {
  return MeanOf(predictions.size(), weights, [&](size_t i) {
    return std::fabs(predictions[i] - static_cast<double>(labels[i]));
  });
}

}  // namespace tessera::math

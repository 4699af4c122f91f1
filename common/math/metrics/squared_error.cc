#include "common/math/metrics/squared_error.h"

#include <cstddef>

namespace tessera::math {

WeightedMean MeanSquaredError(const Predictions& predictions, absl::Span<const float> labels,
                              absl::Span<const float> weights) {
  return MeanOf(predictions.size(), weights, [&](size_t i) {
    const double error = predictions[i] - static_cast<double>(labels[i]);
    return error * error;
  });
}

}  // namespace tessera::math

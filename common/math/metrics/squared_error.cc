#include "common/math/metrics/squared_error.h"

#include <cstddef>

#include "common/math/metrics/weighted_mean.h"

namespace tessera::math {

double MeanSquaredError(const Predictions& predictions, absl::Span<const float> labels,
                        absl::Span<const float> weights) {
  return WeightedMean(predictions.size(), weights, [&](size_t i) {
    const double error = predictions[i] - static_cast<double>(labels[i]);
    return error * error;
  });
}

}  // namespace tessera::math

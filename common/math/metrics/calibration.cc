#include "common/math/metrics/calibration.h"

#include <limits>

#include "common/math/metrics/compensated_sum.h"

namespace tessera::math {

double Calibration(const Predictions& predictions, absl::Span<const float> labels,
                   absl::Span<const float> weights) {
  CompensatedSum predicted, observed;
  for (size_t i = 0; i < predictions.size(); ++i) {
    const double weight = weights.empty() ? 1.0 : weights[i];
    predicted.Add(weight * predictions[i]);
    observed.Add(weight * labels[i]);
  }
  if (observed.value() == 0) return std::numeric_limits<double>::quiet_NaN();
  return predicted.value() / observed.value();
}

}  // namespace tessera::math

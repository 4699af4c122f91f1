#include "common/math/metrics/calibration.h"

#include <cstddef>
#include <limits>

namespace tessera::math {

void Calibration::Add(const Predictions& predictions, absl::Span<const float> labels,
                      absl::Span<const float> weights) {
  for (size_t i = 0; i < predictions.size(); ++i) {
    const double weight = weights.empty() ? 1.0 : weights[i];
    predicted_.Add(weight * predictions[i]);
    observed_.Add(weight * labels[i]);
  }
}

void Calibration::Merge(const Calibration& other) {
  predicted_.Merge(other.predicted_);
  observed_.Merge(other.observed_);
}

double Calibration::value() const {
  const double observed = observed_.value();
  if (observed == 0) return std::numeric_limits<double>::quiet_NaN();
  return predicted_.value() / observed;
}

}  // namespace tessera::math

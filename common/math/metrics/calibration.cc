#include "common/math/metrics/calibration.h"

#include <limits>

#include "common/math/metrics/compensated_sum.h"

namespace tessera::math {

double Calibration(const Predictions& predictions, absl::Span<const float> labels) {
  CompensatedSum predicted, observed;
  for (size_t i = 0; i < predictions.size(); ++i) {
    predicted.Add(predictions[i]);
    observed.Add(labels[i]);
  }
  if (observed.value() == 0) return std::numeric_limits<double>::quiet_NaN();
  return predicted.value() / observed.value();
}

}  // namespace tessera::math

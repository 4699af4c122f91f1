#include "common/math/metrics/squared_error.h"

#include <limits>

#include "common/math/metrics/compensated_sum.h"

namespace tessera::math {

double MeanSquaredError(const Predictions& predictions, absl::Span<const float> labels) {
  if (predictions.size() == 0) return std::numeric_limits<double>::quiet_NaN();
  CompensatedSum sum;
  for (size_t i = 0; i < predictions.size(); ++i) {
    const double error = predictions[i] - static_cast<double>(labels[i]);
    sum.Add(error * error);
  }
  return sum.value() / static_cast<double>(predictions.size());
}

}  // namespace tessera::math

#include "common/math/metrics/absolute_error.h"

#include <cmath>
#include <limits>

#include "common/math/metrics/compensated_sum.h"

namespace tessera::math {

double MeanAbsoluteError(const Predictions& predictions, absl::Span<const float> labels) {
  if (predictions.size() == 0) return std::numeric_limits<double>::quiet_NaN();
  CompensatedSum sum;
  for (size_t i = 0; i < predictions.size(); ++i) {
    const double error = predictions[i] - static_cast<double>(labels[i]);
    sum.Add(std::fabs(error));
  }
  return sum.value() / static_cast<double>(predictions.size());
}

}  // namespace tessera::math

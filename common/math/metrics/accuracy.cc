#include "common/math/metrics/accuracy.h"

#include <cstddef>
#include <limits>

namespace tessera::math {

double Accuracy(absl::Span<const float> logits, absl::Span<const float> labels) {
  if (logits.empty()) return std::numeric_limits<double>::quiet_NaN();
  size_t right = 0;
  for (size_t i = 0; i < logits.size(); ++i) right += (logits[i] >= 0) == (labels[i] > 0.5f);
  return static_cast<double>(right) / static_cast<double>(logits.size());
}

}  // namespace tessera::math

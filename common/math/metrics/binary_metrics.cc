#include "common/math/metrics/binary_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/math/metrics/auc.h"
#include "common/math/metrics/log_loss.h"
#include "common/math/metrics/sorted_scores.h"

namespace tessera::math {

BinaryMetrics ComputeBinaryMetrics(absl::Span<const float> logits, absl::Span<const float> labels) {
  constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
  if (std::any_of(logits.begin(), logits.end(), [](float x) { return std::isnan(x); })) {
    return {kUndefined, kUndefined, logits.size()};
  }
  const SortedScores scores = SortScores(logits, labels);
  return {Auc(scores), LogLoss(logits, labels, {}).value(), logits.size()};
}

}  // namespace tessera::math

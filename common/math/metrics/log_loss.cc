#include "common/math/metrics/log_loss.h"

#include <cmath>
#include <limits>

#include "common/math/loss/sigmoid_cross_entropy.h"
#include "common/math/metrics/compensated_sum.h"

namespace tessera::math {

double LogLoss(const SortedScores& scores) {
  CompensatedSum loss;
  for (uint32_t key : scores.positives) {
    loss.Add(SigmoidCrossEntropy::Value<double>(SortedScores::Logit(key), 1));
  }
  for (uint32_t key : scores.negatives) {
    loss.Add(SigmoidCrossEntropy::Value<double>(SortedScores::Logit(key), 0));
  }
  if (scores.samples() == 0 || !std::isfinite(loss.value())) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return loss.value() / static_cast<double>(scores.samples());
}

}  // namespace tessera::math

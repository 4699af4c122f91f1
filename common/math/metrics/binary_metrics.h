#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace tessera::math {

// How well logits tell the classes apart: auc.h and log_loss.h. Both are NaN where a logit is NaN.
struct BinaryMetrics {
  double auc;
  double logloss;
  uint64_t samples;
};

// Exact, and a function of the samples as a set: their order, and so the number of workers that
// scored them, does not change a bit. Pairs are counted in integers; the sum of losses is exact.
// O(n) time (about 0.1 us a sample), 8 bytes a sample besides the arguments.
BinaryMetrics ComputeBinaryMetrics(absl::Span<const float> logits,   // [n]
                                   absl::Span<const float> labels);  // [n], above 0.5: positive

}  // namespace tessera::math

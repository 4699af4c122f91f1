#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace tessera::math {

// How well logits tell the classes apart: auc.h and log_loss.h. Both are NaN if a logit is NaN.
struct BinaryMetrics {
  double auc;
  double logloss;
  uint64_t samples;
};

// Exact, and independent of the samples' order: neither it nor the number of workers that scored
// them changes a bit. Pairs are counted in integers; the sum of losses is exact. O(n) time (about
// 0.1 us a sample), 8 bytes a sample besides the arguments.
BinaryMetrics ComputeBinaryMetrics(absl::Span<const float> logits,   // [n]
                                   absl::Span<const float> labels);  // [n], above 0.5: positive

}  // namespace tessera::math

#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tessera::math {

// The logits of each class in ascending order, as integers of the same order as the floats (-0 and
// 0 are one). What is computed from them without weights is a function of the samples as a set:
// their order, and so the number of workers that scored them, does not change a bit.
struct SortedScores {
  std::vector<uint32_t> positives;
  std::vector<uint32_t> negatives;
  // Of each, side by side with them; both empty: all 1. Samples of one logit then stay in the order
  // in which they came, and so do their sums.
  std::vector<float> positive_weights;
  std::vector<float> negative_weights;

  bool weighted() const { return !positive_weights.empty() || !negative_weights.empty(); }
  uint64_t samples() const { return positives.size() + negatives.size(); }
  // Integers of the same order as the floats; of what is not NaN never 0, nor 2^32 - 1.
  static uint32_t Key(float logit);
};

// No logit is NaN. O(n) time, 8 bytes a sample besides the arguments; with weights O(n log n).
SortedScores SortScores(absl::Span<const float> logits,         // [n]
                        absl::Span<const float> labels,         // [n], above 0.5: positive
                        absl::Span<const float> weights = {});  // [n]; empty: all 1

}  // namespace tessera::math

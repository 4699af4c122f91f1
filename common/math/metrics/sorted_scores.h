#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tessera::math {

// The logits of each class in ascending order, as integers that order like the floats (-0 and 0 are
// equal). Values computed from them without weights do not depend on the samples' order, nor on the
// number of workers that scored them, to the bit.
struct SortedScores {
  std::vector<uint32_t> positives;
  std::vector<uint32_t> negatives;
  // The weight of each sample, parallel to the keys; both empty: all 1. With weights, samples of
  // one logit stay in their order, and so do their sums.
  std::vector<float> positive_weights;
  std::vector<float> negative_weights;

  bool weighted() const { return !positive_weights.empty() || !negative_weights.empty(); }
  uint64_t samples() const { return positives.size() + negatives.size(); }
  // An integer that orders like the float; for a number never 0 nor 2^32 - 1.
  static uint32_t Key(float logit);
};

// No logit is NaN. O(n) time, 8 bytes a sample besides the arguments; with weights O(n log n).
SortedScores SortScores(absl::Span<const float> logits,         // [n]
                        absl::Span<const float> labels,         // [n], above 0.5: positive
                        absl::Span<const float> weights = {});  // [n]; empty: all 1

}  // namespace tessera::math

#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tessera::math {

// The logits of each class in ascending order, as integers of the same order as the floats (-0 and
// 0 are one). What is computed from them is a function of the samples as a set: their order, and so
// the number of workers that scored them, does not change a bit.
struct SortedScores {
  std::vector<uint32_t> positives;
  std::vector<uint32_t> negatives;

  uint64_t samples() const { return positives.size() + negatives.size(); }
  static float Logit(uint32_t key);
};

// No logit is NaN. O(n) time, 8 bytes a sample besides the arguments.
SortedScores SortScores(absl::Span<const float> logits,   // [n]
                        absl::Span<const float> labels);  // [n], above 0.5: positive

}  // namespace tessera::math

#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace tessera::math {

// AUC within groups, such as one user's samples, averaged by their numbers of samples n_g (Zhu et
// al. 2017, arXiv:1703.02091, section 5):
//   GAUC = sum over g of n_g AUC_g / sum over g of n_g
// over the groups that have both classes; NaN if none has. O(n log n) time, 4 bytes a sample
// besides the arguments.
double GroupedAuc(absl::Span<const float> logits,     // [n], none NaN
                  absl::Span<const float> labels,     // [n], above 0.5: positive
                  absl::Span<const uint64_t> groups,  // [n], equal numbers are one group
                  // [n]; empty: all 1. With weights n_g is the sum of the group's weights.
                  absl::Span<const float> weights);

}  // namespace tessera::math

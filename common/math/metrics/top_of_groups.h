#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace tessera::math {

// How good the k best-scored samples of a group are, averaged over groups. A group's weight is the
// mean weight of its samples. Samples of equal score are in random order, and the expectation is
// taken, so that a model that tells nothing apart gains nothing from the order of the data. A
// sample is relevant if its label is above 0.
struct TopOfGroups {
  absl::Span<const float> scores;     // [n], none NaN
  absl::Span<const float> labels;     // [n], 0 or more
  absl::Span<const uint64_t> groups;  // [n], equal numbers are one group
  absl::Span<const float> weights;    // [n]; empty: all 1

  // Relevant samples among the first k, over k. Mean over all groups.
  double Precision(uint32_t k) const;
  // Relevant samples among the first k, over all relevant ones. Mean over the groups that have any.
  double Recall(uint32_t k) const;
  // DCG / the DCG of the best order, with (Jarvelin, Kekalainen 2002; gains as in Burges et al.
  // 2005)
  //   DCG = sum over the first k of (2^label - 1) / log2(1 + place),  place = 1, 2, ...
  // Mean over the groups that have a relevant sample.
  double Ndcg(uint32_t k) const;
};

}  // namespace tessera::math

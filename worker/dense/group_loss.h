#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "worker/dense/loss.h"

namespace tessera::worker {

// Calls body(samples) for one group after another, with the part of `order` that holds the group;
// `order` comes from SortByGroup.
template <typename Body>
void ForEachGroup(absl::Span<const uint64_t> groups, absl::Span<const uint32_t> order,
                  const Body& body) {
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && groups[order[end]] == groups[order[begin]]) ++end;
    body(order.subspan(begin, end - begin));
  }
}

// The factor that turns a sum over all pairs (lists) into n times their mean: n / number of pairs
// (lists); 0 if there are none.
double PairFactor(uint32_t label, const Targets& targets, absl::Span<const uint32_t> order);
double ListFactor(uint32_t label, const Targets& targets, absl::Span<const uint32_t> order);

// Losses of several numbers at once, called by LossFunction::Evaluate under its contract; `label`
// is the column of targets.labels.

// SOFTMAX_CROSS_ENTROPY.
double ClassLoss(absl::Span<const float> outputs,  // [n, classes]
                 size_t classes, uint32_t label, const Targets& targets, float scale,
                 absl::Span<float> gradient);
// BAYESIAN_PERSONALIZED_RANKING: n times the mean over the pairs of a sample whose label is above
// 0.5 and one of its group whose label is there and is not; 0 where there is no pair. As many
// exponentials as pairs.
double PairLoss(absl::Span<const float> outputs, uint32_t label, const Targets& targets,
                absl::Span<const uint32_t> order, float scale, absl::Span<float> gradient);
// LISTWISE_SOFTMAX: n times the mean over the groups that have a label above 0; 0 where there is
// none.
double ListLoss(absl::Span<const float> outputs, uint32_t label, const Targets& targets,
                absl::Span<const uint32_t> order, float scale, absl::Span<float> gradient);

}  // namespace tessera::worker

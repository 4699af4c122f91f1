#include "common/math/metrics/grouped_auc.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

#include "common/math/metrics/auc.h"
#include "common/math/metrics/compensated_sum.h"

namespace tessera::math {
namespace {

// `order`: sample numbers sorted by group.
double WeightedGroupedAuc(absl::Span<const uint32_t> order, absl::Span<const float> logits,
                          absl::Span<const float> labels, absl::Span<const uint64_t> groups,
                          absl::Span<const float> weights) {
  CompensatedSum sum, all;
  std::vector<float> x, y, w;
  for (size_t at = 0; at < order.size();) {
    x.clear(), y.clear(), w.clear();
    CompensatedSum weight;
    const uint64_t group = groups[order[at]];
    for (; at < order.size() && groups[order[at]] == group; ++at) {
      x.push_back(logits[order[at]]);
      y.push_back(labels[order[at]]);
      w.push_back(weights[order[at]]);
      weight.Add(w.back());
    }
    const double auc = Auc(SortScores(x, y, w));
    if (std::isnan(auc)) continue;
    sum.Add(weight.value() * auc);
    all.Add(weight.value());
  }
  return all.value() > 0 ? sum.value() / all.value() : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

double GroupedAuc(absl::Span<const float> logits, absl::Span<const float> labels,
                  absl::Span<const uint64_t> groups, absl::Span<const float> weights) {
  std::vector<uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    if (groups[a] != groups[b]) return groups[a] < groups[b];
    return logits[a] != logits[b] ? logits[a] < logits[b] : a < b;
  });
  if (!weights.empty()) return WeightedGroupedAuc(order, logits, labels, groups, weights);
  CompensatedSum sum;
  uint64_t samples = 0;
  for (size_t at = 0; at < order.size();) {
    const size_t begin = at;
    const uint64_t group = groups[order[begin]];
    // Counts as Auc does: twice the ordered pairs, ties counting one.
    unsigned __int128 twice = 0;
    uint64_t positives = 0, negatives = 0;
    while (at < order.size() && groups[order[at]] == group) {
      const float logit = logits[order[at]];
      uint64_t tied_positives = 0, tied_negatives = 0;
      for (; at < order.size() && groups[order[at]] == group && logits[order[at]] == logit; ++at) {
        ++(labels[order[at]] > 0.5f ? tied_positives : tied_negatives);
      }
      twice += static_cast<unsigned __int128>(tied_positives) * (2 * negatives + tied_negatives);
      positives += tied_positives;
      negatives += tied_negatives;
    }
    if (positives == 0 || negatives == 0) continue;
    const double auc =
        static_cast<double>(twice) /
        static_cast<double>(static_cast<unsigned __int128>(2 * positives) * negatives);
    sum.Add(static_cast<double>(at - begin) * auc);
    samples += at - begin;
  }
  if (samples == 0) return std::numeric_limits<double>::quiet_NaN();
  return sum.value() / static_cast<double>(samples);
}

}  // namespace tessera::math

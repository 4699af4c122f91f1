#include "common/math/metrics/top_of_groups.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "common/math/metrics/compensated_sum.h"

namespace tessera::math {
namespace {

// The samples of one group, best score first.
struct Ranking {
  std::vector<float> labels;
  std::vector<size_t> ends;  // ends of the runs of samples with the same score

  size_t size() const { return labels.size(); }
};

// The mean of measure(ranking) over all groups, without groups for which it is NaN.
template <typename Measure>
double MeanOverGroups(const TopOfGroups& of, Measure measure) {
  std::vector<uint32_t> order(of.scores.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    if (of.groups[a] != of.groups[b]) return of.groups[a] < of.groups[b];
    return of.scores[a] != of.scores[b] ? of.scores[a] > of.scores[b] : a < b;
  });
  CompensatedSum sum, total;
  Ranking ranking;
  for (size_t at = 0; at < order.size();) {
    ranking.labels.clear();
    ranking.ends.clear();
    CompensatedSum weight;
    const uint64_t group = of.groups[order[at]];
    for (; at < order.size() && of.groups[order[at]] == group; ++at) {
      const bool same = ranking.size() > 0 && of.scores[order[at]] == of.scores[order[at - 1]];
      if (same) ranking.ends.pop_back();
      ranking.labels.push_back(of.labels[order[at]]);
      ranking.ends.push_back(ranking.size());
      weight.Add(of.weights.empty() ? 1.0 : of.weights[order[at]]);
    }
    const double value = measure(ranking);
    if (std::isnan(value)) continue;
    const double share = weight.value() / static_cast<double>(ranking.size());
    sum.Add(share * value);
    total.Add(share);
  }
  return total.value() > 0 ? sum.value() / total.value() : std::numeric_limits<double>::quiet_NaN();
}

// The sum over the first k places of worth(label) * discount(place from 0), as the mean over all
// orders of samples of equal score.
template <typename Worth, typename Discount>
double Expected(const Ranking& ranking, size_t k, Worth worth, Discount discount) {
  CompensatedSum sum;
  size_t place = 0;
  for (const size_t end : ranking.ends) {
    if (place >= k) break;
    CompensatedSum run;
    for (size_t i = place; i < end; ++i) run.Add(worth(ranking.labels[i]));
    const double mean = run.value() / static_cast<double>(end - place);
    for (; place < std::min(end, k); ++place) sum.Add(mean * discount(place));
    place = end;
  }
  return sum.value();
}

double Relevant(const Ranking& ranking, size_t k) {
  return Expected(
      ranking, k, [](float label) { return label > 0 ? 1.0 : 0.0; }, [](size_t) { return 1.0; });
}

// DCG / 2^largest, which is finite for any labels; `largest` is the largest label.
double Gain(const Ranking& ranking, double largest, size_t k) {
  const double one = std::exp2(-largest);
  return Expected(
      ranking, k,
      [=](float label) { return std::exp2(static_cast<double>(label) - largest) - one; },
      [](size_t place) { return 1 / std::log2(2.0 + static_cast<double>(place)); });
}

}  // namespace

double TopOfGroups::Precision(uint32_t k) const {
  return MeanOverGroups(
      *this, [k](const Ranking& ranking) { return Relevant(ranking, k) / static_cast<double>(k); });
}

double TopOfGroups::Recall(uint32_t k) const {
  return MeanOverGroups(*this, [k](const Ranking& ranking) {
    return Relevant(ranking, k) / Relevant(ranking, ranking.size());
  });
}

double TopOfGroups::Ndcg(uint32_t k) const {
  return MeanOverGroups(*this, [k](Ranking& ranking) {
    std::vector<float>& labels = ranking.labels;
    const auto largest = static_cast<double>(*std::max_element(labels.begin(), labels.end()));
    const double gain = Gain(ranking, largest, k);
    std::sort(labels.begin(), labels.end(), std::greater<float>());
    ranking.ends.resize(labels.size());
    std::iota(ranking.ends.begin(), ranking.ends.end(), size_t{1});
    return gain / Gain(ranking, largest, k);
  });
}

}  // namespace tessera::math

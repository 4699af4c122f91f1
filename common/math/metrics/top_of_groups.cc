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

// Over all groups the mean of measure(labels of the group in the order of its scores), those left
// out for which it is NaN.
template <typename Measure>
double MeanOverGroups(const TopOfGroups& of, Measure measure) {
  std::vector<uint32_t> order(of.scores.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    if (of.groups[a] != of.groups[b]) return of.groups[a] < of.groups[b];
    return of.scores[a] != of.scores[b] ? of.scores[a] > of.scores[b] : a < b;
  });
  CompensatedSum sum, total;
  std::vector<float> labels;
  for (size_t at = 0; at < order.size();) {
    labels.clear();
    CompensatedSum weight;
    const uint64_t group = of.groups[order[at]];
    for (; at < order.size() && of.groups[order[at]] == group; ++at) {
      labels.push_back(of.labels[order[at]]);
      weight.Add(of.weights.empty() ? 1.0 : of.weights[order[at]]);
    }
    const double value = measure(labels);
    if (std::isnan(value)) continue;
    const double share = weight.value() / static_cast<double>(labels.size());
    sum.Add(share * value);
    total.Add(share);
  }
  return total.value() > 0 ? sum.value() / total.value() : std::numeric_limits<double>::quiet_NaN();
}

double Relevant(const std::vector<float>& labels, size_t first) {
  return static_cast<double>(std::count_if(labels.begin(),
                                           labels.begin() + std::min(first, labels.size()),
                                           [](float label) { return label > 0; }));
}

// DCG / 2^largest, which is finite whatever the labels; `largest` is the largest of them.
double Gain(const std::vector<float>& labels, double largest, size_t first) {
  const double one = std::exp2(-largest);
  CompensatedSum sum;
  for (size_t i = 0; i < std::min(first, labels.size()); ++i) {
    const double gain = std::exp2(static_cast<double>(labels[i]) - largest) - one;
    sum.Add(gain / std::log2(2.0 + static_cast<double>(i)));
  }
  return sum.value();
}

}  // namespace

double TopOfGroups::Precision(uint32_t k) const {
  return MeanOverGroups(*this, [k](const std::vector<float>& labels) {
    return Relevant(labels, k) / static_cast<double>(k);
  });
}

double TopOfGroups::Recall(uint32_t k) const {
  return MeanOverGroups(*this, [k](const std::vector<float>& labels) {
    return Relevant(labels, k) / Relevant(labels, labels.size());
  });
}

double TopOfGroups::Ndcg(uint32_t k) const {
  return MeanOverGroups(*this, [k](std::vector<float>& labels) {
    const auto largest = static_cast<double>(*std::max_element(labels.begin(), labels.end()));
    const double gain = Gain(labels, largest, k);
    std::sort(labels.begin(), labels.end(), std::greater<float>());
    return gain / Gain(labels, largest, k);
  });
}

}  // namespace tessera::math

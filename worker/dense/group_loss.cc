#include "worker/dense/group_loss.h"

#include <algorithm>
#include <cmath>

#include "common/math/loss/bayesian_personalized_ranking.h"
#include "common/math/loss/listwise_softmax.h"
#include "common/math/loss/softmax_cross_entropy.h"

namespace tessera::worker {
namespace {

// body(the samples of one group), group after group.
template <typename Body>
void ForEachGroup(const Targets& targets, absl::Span<const uint32_t> order, const Body& body) {
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && targets.groups[order[end]] == targets.groups[order[begin]]) ++end;
    body(order.subspan(begin, end - begin));
  }
}

}  // namespace

double ClassLoss(absl::Span<const float> outputs, size_t classes, uint32_t label,
                 const Targets& targets, float scale, absl::Span<float> gradient) {
  double loss = 0;
  for (size_t i = 0; i * classes < outputs.size(); ++i) {
    const float* const x = outputs.data() + i * classes;
    const auto y = static_cast<size_t>(targets.Label(i, label));
    const float weight = targets.weights.empty() ? 1.0f : targets.weights[i];
    const float largest = *std::max_element(x, x + classes);
    double sum = 0;
    for (size_t k = 0; k < classes; ++k) sum += std::exp(static_cast<double>(x[k]) - largest);
    loss -= weight * math::SoftmaxCrossEntropy::LogProbability<double>(x[y], largest, sum);
    for (size_t k = 0; k < classes; ++k) {
      gradient[i * classes + k] = scale * weight *
                                  math::SoftmaxCrossEntropy::Gradient<float>(
                                      x[k], largest, static_cast<float>(sum), k == y);
    }
  }
  return loss;
}

double PairLoss(absl::Span<const float> outputs, uint32_t label, const Targets& targets,
                absl::Span<const uint32_t> order, float scale, absl::Span<float> gradient) {
  const auto is_positive = [&](uint32_t i) { return targets.Label(i, label) > 0.5f; };
  double pairs = 0;
  ForEachGroup(targets, order, [&](absl::Span<const uint32_t> group) {
    const auto positives = std::count_if(group.begin(), group.end(), is_positive);
    pairs += static_cast<double>(positives) *
             static_cast<double>(static_cast<int64_t>(group.size()) - positives);
  });
  std::fill(gradient.begin(), gradient.end(), 0.0f);
  if (pairs == 0) return 0;
  const double per_pair = static_cast<double>(outputs.size()) / pairs;
  double loss = 0;
  ForEachGroup(targets, order, [&](absl::Span<const uint32_t> group) {
    for (const uint32_t p : group) {
      if (!is_positive(p)) continue;
      for (const uint32_t n : group) {
        if (is_positive(n)) continue;
        loss += math::BayesianPersonalizedRanking::Value<double>(outputs[p], outputs[n]);
        const float g = math::BayesianPersonalizedRanking::Gradient<float>(outputs[p], outputs[n]);
        gradient[n] += g;
        gradient[p] -= g;
      }
    }
  });
  const float factor = scale * static_cast<float>(per_pair);
  for (float& g : gradient) g *= factor;
  return loss * per_pair;
}

double ListLoss(absl::Span<const float> outputs, uint32_t label, const Targets& targets,
                absl::Span<const uint32_t> order, float scale, absl::Span<float> gradient) {
  std::fill(gradient.begin(), gradient.end(), 0.0f);
  double loss = 0, groups = 0;
  ForEachGroup(targets, order, [&](absl::Span<const uint32_t> group) {
    float largest = outputs[group[0]];
    double labels = 0, sum = 0;
    for (const uint32_t i : group) {
      largest = std::max(largest, outputs[i]);
      labels += targets.Label(i, label);
    }
    if (!(labels > 0)) return;
    for (const uint32_t i : group) sum += std::exp(static_cast<double>(outputs[i]) - largest);
    for (const uint32_t i : group) {
      const double share = targets.Label(i, label) / labels;
      loss += math::ListwiseSoftmax::Term<double>(outputs[i], share, largest, sum);
      gradient[i] = static_cast<float>(
          math::ListwiseSoftmax::Gradient<double>(outputs[i], share, largest, sum));
    }
    groups += 1;
  });
  if (groups == 0) return 0;
  const double per_group = static_cast<double>(outputs.size()) / groups;
  const float factor = scale * static_cast<float>(per_group);
  for (float& g : gradient) g *= factor;
  return loss * per_group;
}

}  // namespace tessera::worker

#include "worker/dense/group_loss.h"

#include <algorithm>
#include <limits>

#include "common/math/loss/bayesian_personalized_ranking.h"
#include "common/math/loss/exponential_term.h"
#include "common/math/loss/listwise_softmax.h"
#include "common/math/loss/missing_label.h"
#include "common/math/loss/positive_label.h"
#include "common/math/loss/softmax_cross_entropy.h"

namespace tessera::worker {
namespace {

// n / count, or 0 if the count is 0.
double Factor(const Targets& targets, double count) {
  return count == 0 ? 0 : static_cast<double>(targets.groups.size()) / count;
}

bool IsPositive(const Targets& targets, uint32_t label, uint32_t i) {
  return math::IsPositive(targets.Label(i, label));
}

bool IsMissing(const Targets& targets, uint32_t label, uint32_t i) {
  return math::IsMissing(targets.Label(i, label));
}

// Has a label, and a negative one.
bool IsNegative(const Targets& targets, uint32_t label, uint32_t i) {
  return !IsPositive(targets, label, i) && !IsMissing(targets, label, i);
}

// Of those that there are.
double LabelSum(const Targets& targets, uint32_t label, absl::Span<const uint32_t> group) {
  double sum = 0;
  for (const uint32_t i : group) {
    if (!IsMissing(targets, label, i)) sum += targets.Label(i, label);
  }
  return sum;
}

}  // namespace

double ClassLoss(absl::Span<const float> outputs, size_t classes, uint32_t label,
                 const Targets& targets, float scale, absl::Span<float> gradient) {
  double loss = 0;
  for (size_t i = 0; i * classes < outputs.size(); ++i) {
    if (IsMissing(targets, label, static_cast<uint32_t>(i))) {
      std::fill_n(gradient.begin() + static_cast<std::ptrdiff_t>(i * classes), classes, 0.0f);
      continue;
    }
    const float* const x = outputs.data() + i * classes;
    const auto y = static_cast<size_t>(targets.Label(i, label));
    const float weight = targets.weights.empty() ? 1.0f : targets.weights[i];
    const float largest = *std::max_element(x, x + classes);
    double sum = 0;
    for (size_t k = 0; k < classes; ++k) sum += math::ExponentialTerm(x[k], largest);
    loss -= weight * math::SoftmaxCrossEntropy::LogProbability<double>(x[y], largest, sum);
    for (size_t k = 0; k < classes; ++k) {
      gradient[i * classes + k] = scale * weight *
                                  math::SoftmaxCrossEntropy::Gradient<float>(
                                      x[k], largest, static_cast<float>(sum), k == y);
    }
  }
  return loss;
}

double PairFactor(uint32_t label, const Targets& targets, absl::Span<const uint32_t> order) {
  double pairs = 0;
  ForEachGroup(targets.groups, order, [&](absl::Span<const uint32_t> group) {
    const auto count = [&](bool (*is)(const Targets&, uint32_t, uint32_t)) {
      return static_cast<double>(std::count_if(group.begin(), group.end(),
                                               [&](uint32_t i) { return is(targets, label, i); }));
    };
    pairs += count(IsPositive) * count(IsNegative);
  });
  return Factor(targets, pairs);
}

double PairLoss(absl::Span<const float> outputs, uint32_t label, const Targets& targets,
                absl::Span<const uint32_t> order, float scale, absl::Span<float> gradient) {
  std::fill(gradient.begin(), gradient.end(), 0.0f);
  double loss = 0;
  ForEachGroup(targets.groups, order, [&](absl::Span<const uint32_t> group) {
    for (const uint32_t p : group) {
      if (!IsPositive(targets, label, p)) continue;
      for (const uint32_t n : group) {
        if (!IsNegative(targets, label, n)) continue;
        loss += math::BayesianPersonalizedRanking::Value<double>(outputs[p], outputs[n]);
        const float g = math::BayesianPersonalizedRanking::Gradient<float>(outputs[p], outputs[n]);
        gradient[n] += g;
        gradient[p] -= g;
      }
    }
  });
  const double per_pair = PairFactor(label, targets, order);
  const float factor = scale * static_cast<float>(per_pair);
  for (float& g : gradient) g *= factor;
  return loss * per_pair;
}

double ListFactor(uint32_t label, const Targets& targets, absl::Span<const uint32_t> order) {
  double lists = 0;
  ForEachGroup(targets.groups, order, [&](absl::Span<const uint32_t> group) {
    if (LabelSum(targets, label, group) > 0) lists += 1;
  });
  return Factor(targets, lists);
}

double ListLoss(absl::Span<const float> outputs, uint32_t label, const Targets& targets,
                absl::Span<const uint32_t> order, float scale, absl::Span<float> gradient) {
  std::fill(gradient.begin(), gradient.end(), 0.0f);
  double loss = 0;
  ForEachGroup(targets.groups, order, [&](absl::Span<const uint32_t> group) {
    const double labels = LabelSum(targets, label, group);
    if (!(labels > 0)) return;
    float largest = -std::numeric_limits<float>::infinity();
    double sum = 0;
    for (const uint32_t i : group) {
      if (!IsMissing(targets, label, i)) largest = std::max(largest, outputs[i]);
    }
    for (const uint32_t i : group) {
      if (!IsMissing(targets, label, i)) sum += math::ExponentialTerm(outputs[i], largest);
    }
    for (const uint32_t i : group) {
      if (IsMissing(targets, label, i)) continue;
      const double share = targets.Label(i, label) / labels;
      loss += math::ListwiseSoftmax::Term<double>(outputs[i], share, largest, sum);
      gradient[i] = static_cast<float>(
          math::ListwiseSoftmax::Gradient<double>(outputs[i], share, largest, sum));
    }
  });
  const double per_list = ListFactor(label, targets, order);
  const float factor = scale * static_cast<float>(per_list);
  for (float& g : gradient) g *= factor;
  return loss * per_list;
}

}  // namespace tessera::worker

#include "worker/dense/loss.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "common/log.h"
#include "common/math/loss/huber.h"
#include "common/math/loss/missing_label.h"
#include "common/math/loss/positive_label.h"
#include "common/math/loss/sigmoid_cross_entropy.h"
#include "common/math/loss/squared_error.h"
#include "worker/dense/group_loss.h"

namespace tessera::worker {
namespace {

// Evaluates a loss of single outputs: `value` in double, `derivative` in float32.
template <typename Value, typename Derivative>
double Loop(absl::Span<const float> outputs, const LossFunction& loss, const Targets& targets,
            float scale, absl::Span<float> gradient, Value value, Derivative derivative) {
  double sum = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const float y = targets.Label(i, loss.label);
    const bool counts = !math::IsMissing(y);
    if (counts) sum += value(outputs[i], y);
    gradient[i] = counts ? scale * derivative(outputs[i], y) : 0.0f;
  }
  return sum;
}

template <typename Value, typename Derivative>
double WeightedLoop(absl::Span<const float> outputs, const LossFunction& loss,
                    const Targets& targets, float scale, absl::Span<float> gradient, Value value,
                    Derivative derivative) {
  if (targets.weights.empty()) {
    return Loop(outputs, loss, targets, scale, gradient, value, derivative);
  }
  double sum = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const float y = targets.Label(i, loss.label);
    const float weight = targets.weights[i];
    const bool counts = !math::IsMissing(y);
    if (counts) sum += weight * value(outputs[i], y);
    gradient[i] = counts ? scale * weight * derivative(outputs[i], y) : 0.0f;
  }
  return sum;
}

// Ends the process: AllLosses has a loss that a switch of this file lacks.
[[noreturn]] void NoCaseFor(v1::Loss kind) {
  spdlog::critical("LossFunction: worker/dense/loss.cc has no case for {}", LossName(kind));
  std::abort();
}

}  // namespace

void SortByGroup(absl::Span<const uint64_t> groups, std::vector<uint32_t>* order) {
  order->resize(groups.size());
  std::iota(order->begin(), order->end(), 0u);
  std::sort(order->begin(), order->end(), [&](uint32_t a, uint32_t b) {
    return groups[a] != groups[b] ? groups[a] < groups[b] : a < b;
  });
}

LossFunction LossFunction::Of(const JobTask& task) {
  LossFunction loss;
  loss.kind = task.loss;
  loss.label = task.label;
  loss.task_weight = task.weight;
  loss.positive_weight = task.positive_weight;
  loss.huber_delta = task.huber_delta;
  return loss;
}

double LossFunction::Evaluate(absl::Span<const float> outputs, size_t width, const Targets& targets,
                              absl::Span<const uint32_t> order, float scale,
                              absl::Span<float> gradient) const {
  scale *= task_weight;
  const auto weigh = [this](double sum) { return task_weight == 1 ? sum : task_weight * sum; };
  const auto class_weight = [this](float y) { return math::ClassWeight(y, positive_weight); };
  switch (kind) {
    case v1::BINARY_CROSS_ENTROPY:
      return weigh(WeightedLoop(
          outputs, *this, targets, scale, gradient,
          [&](float x, float y) {
            return class_weight(y) * math::SigmoidCrossEntropy::Value<double>(x, y);
          },
          [&](float x, float y) {
            return class_weight(y) * math::SigmoidCrossEntropy::Gradient<float>(x, y);
          }));
    case v1::MEAN_SQUARED_ERROR:
      return weigh(WeightedLoop(outputs, *this, targets, scale, gradient,
                                math::SquaredError::Value<double>,
                                math::SquaredError::Gradient<float>));
    case v1::HUBER:
      return weigh(WeightedLoop(
          outputs, *this, targets, scale, gradient,
          [this](double x, double y) { return math::Huber::Value<double>(x, y, huber_delta); },
          [this](float x, float y) { return math::Huber::Gradient(x, y, huber_delta); }));
    case v1::SOFTMAX_CROSS_ENTROPY:
      return weigh(ClassLoss(outputs, width, label, targets, scale, gradient));
    case v1::BAYESIAN_PERSONALIZED_RANKING:
      return weigh(PairLoss(outputs, label, targets, order, scale, gradient));
    case v1::LISTWISE_SOFTMAX:
      return weigh(ListLoss(outputs, label, targets, order, scale, gradient));
    default:
      NoCaseFor(kind);
  }
}

double LossFunction::MeanFactor(const Targets& targets, absl::Span<const uint32_t> order) const {
  switch (kind) {
    case v1::BAYESIAN_PERSONALIZED_RANKING:
      return PairFactor(label, targets, order);
    case v1::LISTWISE_SOFTMAX:
      return ListFactor(label, targets, order);
    default:
      if (IsRanking(kind)) NoCaseFor(kind);
      return 1;
  }
}

void LossFunction::CudaEvaluate(cuda::Stream& stream, const float* outputs, int64_t width,
                                cuda::LossSamples samples, const cuda::LossGroups& groups,
                                float* gradient, double* sums) const {
  samples.factor = task_weight;
  switch (kind) {
    case v1::BINARY_CROSS_ENTROPY:
      return cuda::SigmoidCrossEntropyLoss(stream, samples, outputs, positive_weight, gradient,
                                           sums);
    case v1::MEAN_SQUARED_ERROR:
      return cuda::SquaredErrorLoss(stream, samples, outputs, gradient, sums);
    case v1::HUBER:
      return cuda::HuberLoss(stream, samples, outputs, huber_delta, gradient, sums);
    case v1::SOFTMAX_CROSS_ENTROPY:
      return cuda::SoftmaxCrossEntropyLoss(stream, samples, outputs, width, gradient, sums);
    case v1::BAYESIAN_PERSONALIZED_RANKING:
      return cuda::PairwiseLoss(stream, samples, groups, outputs, gradient, sums);
    case v1::LISTWISE_SOFTMAX:
      return cuda::ListwiseLoss(stream, samples, groups, outputs, gradient, sums);
    default:
      NoCaseFor(kind);
  }
}

double AddedLoss(absl::Span<const float> values, float weight, const Targets& targets, float scale,
                 absl::Span<float> gradient) {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const float of_sample = targets.weights.empty() ? 1.0f : targets.weights[i];
    sum += static_cast<double>(of_sample) * values[i];
    gradient[i] = scale * weight * of_sample;
  }
  return weight * sum;
}

}  // namespace tessera::worker

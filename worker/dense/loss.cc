#include "worker/dense/loss.h"

#include <cstddef>

#include "common/math/loss/huber.h"
#include "common/math/loss/sigmoid_cross_entropy.h"
#include "common/math/loss/squared_error.h"

namespace tessera::worker {
namespace {

// `value` in double, `derivative` in float32.
template <typename Value, typename Derivative>
double Loop(absl::Span<const float> outputs, absl::Span<const float> labels, float scale,
            absl::Span<float> gradient, Value value, Derivative derivative) {
  double sum = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    sum += value(outputs[i], labels[i]);
    gradient[i] = scale * derivative(outputs[i], labels[i]);
  }
  return sum;
}

}  // namespace

LossFunction LossFunction::Of(const v1::ModelSpec& model) {
  LossFunction loss;
  if (model.loss() != v1::LOSS_UNSPECIFIED) loss.kind = model.loss();
  if (model.has_positive_weight()) loss.positive_weight = model.positive_weight();
  if (model.has_huber_delta()) loss.huber_delta = model.huber_delta();
  return loss;
}

double LossFunction::Evaluate(absl::Span<const float> outputs, absl::Span<const float> labels,
                              float scale, absl::Span<float> gradient) const {
  if (kind == v1::MEAN_SQUARED_ERROR) {
    return Loop(outputs, labels, scale, gradient, math::SquaredError::Value<double>,
                math::SquaredError::Gradient<float>);
  }
  if (kind == v1::HUBER) {
    return Loop(
        outputs, labels, scale, gradient,
        [this](double x, double y) { return math::Huber::Value<double>(x, y, huber_delta); },
        [this](float x, float y) { return math::Huber::Gradient(x, y, huber_delta); });
  }
  const auto weight = [this](float y) { return y > 0.5f ? positive_weight : 1.0f; };
  return Loop(
      outputs, labels, scale, gradient,
      [&weight](float x, float y) {
        return weight(y) * math::SigmoidCrossEntropy::Value<double>(x, y);
      },
      [&weight](float x, float y) {
        return weight(y) * math::SigmoidCrossEntropy::Gradient<float>(x, y);
      });
}

}  // namespace tessera::worker

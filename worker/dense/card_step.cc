#include "worker/dense/card_step.h"

#include <algorithm>
#include <cstring>

#include "cuda/dense/loss_scaling.h"
#include "worker/dense/buffer.h"

namespace tessera::worker {
namespace {

using cuda::Memory;

constexpr size_t kSumFloats = cuda::kLossSums * sizeof(double) / sizeof(float);
// What the card is told: numbers, then columns of RoundUp(batch).
constexpr size_t kLossScaleAt = 0, kScaleBackAt = 1;
constexpr size_t kColumnsAt = Buffer::kAlignFloats;

}  // namespace

CardStep::CardStep(const Model& model, cuda::Stream& stream)
    : model_(model),
      stream_(stream),
      losses_(model.losses().size() + model.graph().losses().size()),
      trained_(model.trained_floats()),
      statistics_(model.statistics_floats()),
      trained_at_(losses_ * kSumFloats + Buffer::kAlignFloats),
      statistics_at_(trained_at_ + Buffer::RoundUp(trained_)) {
  stream_.MakeCurrent();
  const size_t floats = statistics_at_ + statistics_;
  given_memory_ = Memory(stream_, Memory::Where::kDevice, floats);
  given_host_ = Memory(stream_, Memory::Where::kHost, floats);
  given_ = {given_memory_.data(), floats};
}

void CardStep::Reserve(uint32_t capacity) {
  const size_t columns = model_.losses().size() + 1;
  const size_t floats = kColumnsAt + columns * Buffer::RoundUp(capacity);
  // Frees before it takes.
  told_ = Memory();
  told_host_ = Memory();
  told_ = Memory(stream_, Memory::Where::kDevice, floats);
  told_host_ = Memory(stream_, Memory::Where::kHost, floats);
}

void CardStep::Tell(uint32_t batch, const Targets& targets, float loss_scale,
                    float gradient_scale) {
  batch_ = batch;
  weighted_ = !targets.weights.empty();
  stream_.MakeCurrent();
  if (!stream_.status().ok()) return;
  float* to = told_host_.data();
  to[kLossScaleAt] = loss_scale * gradient_scale;
  to[kScaleBackAt] = 1 / gradient_scale;
  to += kColumnsAt;
  for (const LossFunction& loss : model_.losses()) {
    for (uint32_t i = 0; i < batch; ++i) to[i] = targets.Label(i, loss.label);
    to += Buffer::RoundUp(batch);
  }
  to = std::copy(targets.weights.begin(), targets.weights.end(), to);
  stream_.CopyToDevice(told_host_.data(), told_.data(),
                       static_cast<size_t>(to - told_host_.data()));
}

cuda::LossSamples CardStep::Samples() const {
  const float* const columns = told_.data() + kColumnsAt;
  const size_t weights_at = model_.losses().size() * Buffer::RoundUp(batch_);
  return {.n = batch_,
          .labels = columns,
          .weights = weighted_ ? columns + weights_at : nullptr,
          .scale = told_.data() + kLossScaleAt,
          .factor = 1};
}

double* CardStep::Sums(size_t loss) const {
  return reinterpret_cast<double*>(given_memory_.data() + loss * kSumFloats);
}

void CardStep::TaskLoss(size_t task, const float* outputs, float* gradient) {
  if (!stream_.status().ok()) return;
  cuda::LossSamples samples = Samples();
  samples.labels += task * Buffer::RoundUp(batch_);
  model_.losses()[task].CudaEvaluate(stream_, outputs, model_.OutputWidth(task), samples, gradient,
                                     Sums(task));
}

void CardStep::GraphLoss(size_t loss, const float* values, float* gradient) {
  if (!stream_.status().ok()) return;
  cuda::LossSamples samples = Samples();
  samples.factor = model_.graph().losses()[loss].weight;
  cuda::GivenLoss(stream_, samples, values, gradient, Sums(model_.losses().size() + loss));
}

void CardStep::ScaleBack(absl::Span<const absl::Span<float>> input_gradients) {
  if (!stream_.status().ok()) return;
  float* const found = given_memory_.data() + losses_ * kSumFloats;
  stream_.Zero(found, 1);
  const auto scale_back = [&](absl::Span<float> gradient) {
    const auto n = static_cast<int64_t>(gradient.size());
    cuda::AddNonFinite(stream_, gradient.data(), n, found);
    cuda::Multiply(stream_, told_.data() + kScaleBackAt, gradient.data(), n);
  };
  scale_back(trained_gradient());
  for (const absl::Span<float> gradient : input_gradients) scale_back(gradient);
}

void CardStep::StartBack() {
  stream_.StartCopyToHost(given_memory_.data(), given_host_.data(), given_.size());
}

double CardStep::LossSum() const {
  double all = 0;
  for (size_t l = 0; l < losses_; ++l) {
    double sum = 0;
    for (size_t at = l * kSumFloats; at < (l + 1) * kSumFloats; at += 2) {
      double part;
      std::memcpy(&part, given_host_.data() + at, sizeof(part));
      sum += part;
    }
    const size_t tasks = model_.losses().size();
    const float weight =
        l < tasks ? model_.losses()[l].task_weight : model_.graph().losses()[l - tasks].weight;
    all += weight * sum;
  }
  return all;
}

bool CardStep::finite() const { return given_host_.data()[losses_ * kSumFloats] == 0; }

void CardStep::CopyGradients(absl::Span<float> trained, absl::Span<float> statistics) const {
  std::copy_n(given_host_.data() + trained_at_, trained_, trained.begin());
  std::copy_n(given_host_.data() + statistics_at_, statistics_, statistics.begin());
}

}  // namespace tessera::worker

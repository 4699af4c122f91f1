#include "worker/dense/card_step.h"

#include <algorithm>
#include <cstring>

#include "common/job/dense_layout.h"
#include "common/round_up.h"
#include "cuda/dense/loss_scaling.h"
#include "cuda/memory.h"
#include "worker/dense/buffer.h"
#include "worker/dense/group_loss.h"

namespace tessera::worker {
namespace {

using cuda::Memory;

constexpr size_t kSumFloats = cuda::kLossSums * sizeof(double) / sizeof(float);
constexpr size_t kKeyFloats = sizeof(uint64_t) / sizeof(float);
// Indices of the numbers in told_; the scales of the tasks' losses follow.
constexpr size_t kScaleBackAt = 0, kLossScaleAt = 1, kTaskScalesAt = 2;
// Indices of the columns in told_: three that describe groups, then each task's labels, then
// weights.
constexpr size_t kOrder = 0, kBegins = 1, kEnds = 2, kGroupColumns = 3;

}  // namespace

CardStep::CardStep(const Model& model, cuda::Stream& stream)
    : model_(model),
      stream_(stream),
      losses_(model.losses().size() + model.graph().losses().size()),
      trained_(model.trained_floats()),
      statistics_(model.statistics_floats()),
      statistics_at_(losses_ * kSumFloats + Buffer::kAlignFloats),
      trained_at_(statistics_at_ + Buffer::RoundUp(statistics_)),
      keys_at_(Buffer::RoundUp(kTaskScalesAt + model.losses().size())),
      columns_at_(keys_at_ + Buffer::RoundUp(kKeyFloats * model.graph().nodes().size())),
      group_columns_(model.ranks() ? kGroupColumns : 0),
      mean_factors_(model.losses().size(), 1) {
  stream_.MakeCurrent();
  const size_t floats = trained_at_ + RoundUp(trained_, kDenseBlockFloats);
  given_memory_ = Memory(stream_, Memory::Where::kDevice, floats);
  given_host_ = Memory(stream_, Memory::Where::kHost, floats);
  given_ = {given_memory_.data(), floats};
}

void CardStep::Reserve(uint32_t capacity) {
  const size_t columns = group_columns_ + model_.losses().size() + 1;
  const size_t floats = columns_at_ + columns * Buffer::RoundUp(capacity);
  // Frees before it takes.
  told_ = Memory();
  told_host_ = Memory();
  told_ = Memory(stream_, Memory::Where::kDevice, floats);
  told_host_ = Memory(stream_, Memory::Where::kHost, floats);
}

void CardStep::Tell(uint32_t batch, const Targets& targets, float loss_scale, float gradient_scale,
                    absl::Span<const uint64_t> random_keys) {
  batch_ = batch;
  weighted_ = !targets.weights.empty();
  stream_.MakeCurrent();
  if (!stream_.status().ok()) return;
  if (group_columns_ > 0) TellGroups(targets);
  std::memcpy(told_host_.data() + keys_at_, random_keys.data(),
              random_keys.size() * sizeof(uint64_t));
  float* const numbers = told_host_.data();
  numbers[kScaleBackAt] = 1 / gradient_scale;
  numbers[kLossScaleAt] = loss_scale * gradient_scale;
  for (size_t task = 0; task < model_.losses().size(); ++task) {
    const LossFunction& loss = model_.losses()[task];
    mean_factors_[task] = loss.MeanFactor(targets, group_order_);
    numbers[kTaskScalesAt + task] = numbers[kLossScaleAt] * static_cast<float>(mean_factors_[task]);
    float* const labels = told_host_.data() + ColumnAt(group_columns_ + task);
    for (uint32_t i = 0; i < batch; ++i) labels[i] = targets.Label(i, loss.label);
  }
  const size_t weights_at = ColumnAt(group_columns_ + model_.losses().size());
  std::copy(targets.weights.begin(), targets.weights.end(), told_host_.data() + weights_at);
  stream_.CopyToDevice(told_host_.data(), told_.data(), weights_at + targets.weights.size());
}

void CardStep::TellGroups(const Targets& targets) {
  SortByGroup(targets.groups, &group_order_);
  std::copy(group_order_.begin(), group_order_.end(), told_host_.words() + ColumnAt(kOrder));
  ForEachGroup(targets.groups, group_order_, [this](absl::Span<const uint32_t> group) {
    const auto begin = static_cast<uint32_t>(group.data() - group_order_.data());
    const auto size = static_cast<uint32_t>(group.size());
    std::fill_n(told_host_.words() + ColumnAt(kBegins) + begin, size, begin);
    std::fill_n(told_host_.words() + ColumnAt(kEnds) + begin, size, begin + size);
  });
}

const uint64_t* CardStep::random_key(int32_t node) const {
  return reinterpret_cast<const uint64_t*>(told_.data() + keys_at_) + node;
}

size_t CardStep::ColumnAt(size_t column) const {
  return columns_at_ + column * Buffer::RoundUp(batch_);
}

cuda::LossSamples CardStep::Samples(size_t scale_at) const {
  const float* const weights = told_.data() + ColumnAt(group_columns_ + model_.losses().size());
  return {.n = batch_,
          .weights = weighted_ ? weights : nullptr,
          .scale = told_.data() + scale_at,
          .factor = 1};
}

double* CardStep::Sums(size_t loss) const {
  return reinterpret_cast<double*>(given_memory_.data() + loss * kSumFloats);
}

void CardStep::TaskLoss(size_t task, const float* outputs, float* gradient) {
  if (!stream_.status().ok()) return;
  cuda::LossSamples samples = Samples(kTaskScalesAt + task);
  samples.labels = told_.data() + ColumnAt(group_columns_ + task);
  const cuda::LossGroups groups = {.order = told_.words() + ColumnAt(kOrder),
                                   .begins = told_.words() + ColumnAt(kBegins),
                                   .ends = told_.words() + ColumnAt(kEnds)};
  model_.losses()[task].CudaEvaluate(stream_, outputs, model_.OutputWidth(task), samples, groups,
                                     gradient, Sums(task));
}

void CardStep::GraphLoss(size_t loss, const float* values, float* gradient) {
  if (!stream_.status().ok()) return;
  cuda::LossSamples samples = Samples(kLossScaleAt);
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

void CardStep::StartBack(bool with_trained) {
  const size_t floats = trained_at_ + (with_trained ? trained_ : 0);
  stream_.StartCopyToHost(given_memory_.data(), given_host_.data(), floats);
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
    all += l < tasks ? model_.losses()[l].task_weight * mean_factors_[l] * sum
                     : model_.graph().losses()[l - tasks].weight * sum;
  }
  return all;
}

bool CardStep::finite() const { return given_host_.data()[losses_ * kSumFloats] == 0; }

void CardStep::CopyGradients(absl::Span<float> trained, absl::Span<float> statistics) const {
  std::copy_n(given_host_.data() + trained_at_, trained.size(), trained.begin());
  std::copy_n(given_host_.data() + statistics_at_, statistics_, statistics.begin());
}

}  // namespace tessera::worker

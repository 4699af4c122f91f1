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

CardStep::Layout::Layout(const Model& model)
    : losses(model.losses().size() + model.graph().losses().size()),
      tasks(model.losses().size()),
      trained(model.trained_floats()),
      statistics(model.statistics_floats()),
      statistics_at(losses * kSumFloats + Buffer::kAlignFloats),
      trained_at(statistics_at + Buffer::RoundUp(statistics)),
      keys_at(Buffer::RoundUp(kTaskScalesAt + tasks)),
      columns_at(keys_at + Buffer::RoundUp(kKeyFloats * model.graph().nodes().size())),
      group_columns(model.ranks() ? kGroupColumns : 0) {}

size_t CardStep::Layout::given_floats() const {
  return trained_at + RoundUp(trained, kDenseBlockFloats);
}

size_t CardStep::Layout::told_floats(uint32_t capacity) const {
  return columns_at + (group_columns + tasks + 1) * Buffer::RoundUp(capacity);
}

CardStep::CardStep(const Model& model, cuda::Stream& stream)
    : model_(model), stream_(stream), layout_(model), mean_factors_(model.losses().size(), 1) {}

uint64_t CardStep::FloatsFor(const Model& model, uint32_t capacity) {
  const Layout layout(model);
  return layout.given_floats() + layout.told_floats(capacity);
}

void CardStep::Reserve(uint32_t capacity) {
  if (given_memory_.data() == nullptr) {
    const size_t floats = layout_.given_floats();
    given_memory_ = Memory(stream_, Memory::Where::kDevice, floats);
    given_host_ = Memory(stream_, Memory::Where::kHost, floats);
    given_ = {given_memory_.data(), floats};
  }
  const size_t floats = layout_.told_floats(capacity);
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
  if (layout_.group_columns > 0) TellGroups(targets);
  std::memcpy(told_host_.data() + layout_.keys_at, random_keys.data(),
              random_keys.size() * sizeof(uint64_t));
  float* const numbers = told_host_.data();
  numbers[kScaleBackAt] = 1 / gradient_scale;
  numbers[kLossScaleAt] = loss_scale * gradient_scale;
  for (size_t task = 0; task < model_.losses().size(); ++task) {
    const LossFunction& loss = model_.losses()[task];
    mean_factors_[task] = loss.MeanFactor(targets, group_order_);
    numbers[kTaskScalesAt + task] = numbers[kLossScaleAt] * static_cast<float>(mean_factors_[task]);
    float* const labels = told_host_.data() + ColumnAt(layout_.group_columns + task);
    for (uint32_t i = 0; i < batch; ++i) labels[i] = targets.Label(i, loss.label);
  }
  const size_t weights_at = ColumnAt(layout_.group_columns + layout_.tasks);
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
  return reinterpret_cast<const uint64_t*>(told_.data() + layout_.keys_at) + node;
}

size_t CardStep::ColumnAt(size_t column) const {
  return layout_.columns_at + column * Buffer::RoundUp(batch_);
}

cuda::LossSamples CardStep::Samples(size_t scale_at) const {
  const float* const weights = told_.data() + ColumnAt(layout_.group_columns + layout_.tasks);
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
  samples.labels = told_.data() + ColumnAt(layout_.group_columns + task);
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
  float* const found = given_memory_.data() + layout_.losses * kSumFloats;
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
  const size_t floats = layout_.trained_at + (with_trained ? layout_.trained : 0);
  stream_.StartCopyToHost(given_memory_.data(), given_host_.data(), floats);
}

double CardStep::LossSum() const {
  double all = 0;
  for (size_t l = 0; l < layout_.losses; ++l) {
    double sum = 0;
    for (size_t at = l * kSumFloats; at < (l + 1) * kSumFloats; at += 2) {
      double part;
      std::memcpy(&part, given_host_.data() + at, sizeof(part));
      sum += part;
    }
    const size_t tasks = layout_.tasks;
    all += l < tasks ? model_.losses()[l].task_weight * mean_factors_[l] * sum
                     : model_.graph().losses()[l - tasks].weight * sum;
  }
  return all;
}

bool CardStep::finite() const { return given_host_.data()[layout_.losses * kSumFloats] == 0; }

void CardStep::CopyGradients(absl::Span<float> trained, absl::Span<float> statistics) const {
  std::copy_n(given_host_.data() + layout_.trained_at, trained.size(), trained.begin());
  std::copy_n(given_host_.data() + layout_.statistics_at, layout_.statistics, statistics.begin());
}

}  // namespace tessera::worker

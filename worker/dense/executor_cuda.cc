// The executor on a card: where its tensors lie, what travels, and the passes.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/failpoint.h"
#include "common/job/dense_layout.h"
#include "common/log.h"
#include "common/round_up.h"
#include "cuda/dense/accumulate.h"
#include "cuda/memory.h"
#include "worker/dense/executor.h"

namespace tessera::worker {
namespace {

// The form of a batch's work on a card: what its kernels depend on besides the size. (kWeighted and
// kScaled are of steps.)
constexpr uint64_t kForward = 0, kStep = 1, kWeighted = 2, kScaled = 4, kKept = 8, kForms = 16;

size_t InBlocks(uint64_t trained) { return RoundUp(trained, kDenseBlockFloats); }

size_t ParameterFloats(const Model& model) {
  return InBlocks(model.trained_floats()) + model.statistics_floats();
}

// In the card's memory.
uint64_t CardBytes(const Model& model, size_t arena_floats, uint32_t capacity) {
  return (arena_floats + ParameterFloats(model) + CardStep::FloatsFor(model, capacity)) *
         sizeof(float);
}

}  // namespace

absl::Status CheckRunsOnCuda(const Model& model) {
  for (const GraphNode& node : model.graph().nodes()) {
    if (node.op->IsView() || node.op->RunsOnCuda()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("node \"", node.name, "\": ", node.op_name, " does not run on a card"));
  }
  return absl::OkStatus();
}

void Executor::PoolOnCard() {
  for (const Model::Input& input : model_.inputs()) {
    staged_inputs_.erase(std::remove(staged_inputs_.begin(), staged_inputs_.end(), input.tensor),
                         staged_inputs_.end());
  }
}

uint64_t Executor::CardBytesFor(const Model& model, uint32_t batch) {
  return CardBytes(model, Executor(model, /*whole_batches=*/true).PlanMemory(batch), batch);
}

// Want of room may pass, and is tried again; a card that is too small stays so.
absl::Status Executor::CheckCardMemory(size_t arena_floats, uint32_t capacity) const {
  const uint64_t bytes = CardBytes(model_, arena_floats, capacity);
  if (bytes <= stream_->memory_bytes()) return absl::OkStatus();
  const std::string what = capacity == 0 ? "the dense parameters take "
                                         : absl::StrCat("a batch of ", capacity, " takes ");
  return absl::FailedPreconditionError(absl::StrCat(
      what, bytes >> 20, " MiB of the ", stream_->memory_bytes() >> 20, " MiB that the card has; ",
      capacity == 0 ? "compute it on the CPU" : "lower train.batch_size"));
}

void Executor::PlaceOnCard(size_t arena_floats, uint32_t capacity) {
  const Graph& graph = model_.graph();
  size_t at = 0;
  const auto take = [&](size_t floats) {
    const size_t begin = at;
    at += Buffer::RoundUp(floats);
    return begin;
  };
  for (const int32_t tensor : graph.outputs()) {
    Storage& storage = storages_[storage_of_[tensor]];
    storage.staged_value_at = take(capacity * storage.floats);
  }
  for (const int32_t tensor : staged_inputs_) {
    Storage& storage = storages_[storage_of_[tensor]];
    storage.staged_value_at = take(capacity * storage.floats);
    if (storage.needs_gradient) storage.staged_gradient_at = take(capacity * storage.floats);
  }
  using cuda::Memory;
  stream_->MakeCurrent();
  captures_->Forget();
  // Frees before it takes.
  device_arena_ = Memory();
  host_ = Memory();
  if (const absl::Status fits = CheckCardMemory(arena_floats, capacity); !fits.ok()) {
    return stream_->Fail(fits);
  }
  device_arena_ = Memory(*stream_, Memory::Where::kDevice, arena_floats);
  host_ = Memory(*stream_, Memory::Where::kHost, at);
  card_step_->Reserve(capacity);
  TakeParameters();
}

void Executor::TakeParameters() {
  if (parameters_.data() != nullptr) return;
  const size_t floats = ParameterFloats(model_);
  parameters_ = cuda::Memory(*stream_, cuda::Memory::Where::kDevice, floats);
  parameters_host_ = cuda::Memory(*stream_, cuda::Memory::Where::kHost, floats);
}

absl::Span<float> Executor::card_parameters() {
  TakeParameters();
  return {parameters_.data(), InBlocks(model_.trained_floats())};
}

absl::Span<const float> Executor::card_trained_gradient() const {
  return card_step_->trained_gradient();
}

// Copies the parameters into pinned memory, from where the passes copy them to the card.
void Executor::StageParameters(absl::Span<const float> trained,
                               absl::Span<const float> statistics) {
  stream_->MakeCurrent();
  const size_t statistics_at = InBlocks(trained.size());
  BindParameters({parameters_.data(), trained.size()},
                 {parameters_.data() + statistics_at, statistics.size()});
  if (!stream_->status().ok()) return;
  if (!keeps_parameters_) std::copy(trained.begin(), trained.end(), parameters_host_.data());
  std::copy(statistics.begin(), statistics.end(), parameters_host_.data() + statistics_at);
}

void Executor::StartForwardOnCard(absl::Span<const float> trained,
                                  absl::Span<const float> statistics) {
  StageParameters(trained, statistics);
  GiveToCard(kForward | (keeps_parameters_ ? kKept : 0), [this] { RunForwardOnCard(false); });
}

void Executor::StartStepOnCard(const StepArguments& arguments) {
  const Draws draws = {arguments.dropout_step, arguments.rank};
  random_keys_.clear();
  for (size_t node = 0; node < model_.graph().nodes().size(); ++node) {
    random_keys_.push_back(RandomKey(static_cast<int32_t>(node), draws));
  }
  card_step_->Tell(batch_, arguments.targets, arguments.loss_scale, gradient_scale_, random_keys_);
  StageParameters(arguments.trained, arguments.statistics);
  BindGradients(card_step_->trained_gradient(), card_step_->statistics_gradient());
  const bool scaled = gradient_scale_ != 1;
  const uint64_t form = kStep | (arguments.targets.weights.empty() ? 0 : kWeighted) |
                        (scaled ? kScaled : 0) | (keeps_parameters_ ? kKept : 0);
  GiveToCard(form, [this, scaled] {
    RunForwardOnCard(true);
    RunLossesOnCard();
    RunBackwardOnCard();
    if (scaled) ScaleGradientsBack();
    StartGradientsFromCard();
  });
}

// `give` does work that depends on the batch's size and the form alone.
void Executor::GiveToCard(uint64_t form, absl::FunctionRef<void()> give) {
  if (const absl::Status injected = Failpoint("worker.device.work"); !injected.ok()) {
    stream_->Fail(absl::InternalError(injected.message()));
  }
  if (!capture_passes_) return give();
  const absl::Status refused = captures_->Run(batch_ * kForms + form, give);
  if (!refused.ok()) {
    SPDLOG_WARN("passes on the card are given kernel by kernel: {}", refused.ToString());
  }
}

void Executor::RunForwardOnCard(bool training) {
  const size_t kept = keeps_parameters_ ? InBlocks(model_.trained_floats()) : 0;
  stream_->CopyToDevice(parameters_host_.data() + kept, parameters_.data() + kept,
                        parameters_.size() - kept);
  for (const int32_t tensor : staged_inputs_) {
    stream_->CopyToDevice(HostValue(tensor).data(), Value(tensor).data(), Value(tensor).size());
  }
  for (const Step& step : steps_) {
    if (!step.forward || (step.training_only && !training)) continue;
    step.op->CudaForward(*stream_, NewForwardPass(step, step.whole, training, {}));
  }
  for (const int32_t tensor : model_.graph().outputs()) {
    stream_->StartCopyToHost(Value(tensor).data(), HostValue(tensor).data(), Value(tensor).size());
  }
}

void Executor::RunLossesOnCard() {
  const Graph& graph = model_.graph();
  const auto gradient = [this](int32_t tensor) { return Gradient(storage_of_[tensor]).data(); };
  for (size_t task = 0; task < graph.outputs().size(); ++task) {
    const int32_t output = graph.outputs()[task];
    card_step_->TaskLoss(task, Value(output).data(), gradient(output));
  }
  for (size_t loss = 0; loss < graph.losses().size(); ++loss) {
    const int32_t tensor = graph.losses()[loss].tensor;
    card_step_->GraphLoss(loss, Value(tensor).data(), gradient(tensor));
  }
}

void Executor::RunBackwardOnCard() {
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    if (!step->backward) continue;
    for (const int32_t storage : step->unread) {
      stream_->Zero(Gradient(storage).data(), Gradient(storage).size());
    }
    step->op->CudaBackward(*stream_, NewBackwardPass(*step, step->whole, {}));
    for (const Addition& addition : step->additions) {
      const absl::Span<const float> from = step->whole.input_gradients[addition.slot];
      cuda::Accumulate(*stream_, from.data(), Gradient(addition.storage).data(), from.size());
    }
  }
  AddSharedOnCard();
}

void Executor::AddSharedOnCard() {
  for (const Step& step : steps_) {
    for (const SharedGradient& shared : step.shared_gradients) {
      cuda::Accumulate(*stream_, shared.from.data(), shared.to.data(), shared.from.size());
    }
  }
}

void Executor::ScaleGradientsBack() {
  std::vector<absl::Span<float>> input_gradients;
  for (const int32_t tensor : model_.graph().inputs()) {
    const int32_t storage = storage_of_[tensor];
    if (storages_[storage].needs_gradient) input_gradients.push_back(Gradient(storage));
  }
  card_step_->ScaleBack(input_gradients);
}

void Executor::StartGradientsFromCard() {
  // Gradients of inputs that are pooled on the card stay there.
  for (const int32_t tensor : staged_inputs_) {
    const int32_t storage = storage_of_[tensor];
    if (!storages_[storage].needs_gradient) continue;
    stream_->StartCopyToHost(Gradient(storage).data(), HostGradient(tensor).data(),
                             Gradient(storage).size());
  }
  card_step_->StartBack(/*with_trained=*/!keeps_parameters_);
}

}  // namespace tessera::worker

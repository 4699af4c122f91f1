#include "worker/dense/executor.h"

#include <algorithm>
#include <cstdlib>

#include "common/log.h"
#include "common/random.h"
#include "worker/dense/gemm.h"

namespace tessera::worker {
namespace {

// Sizes are the caller's business; a wrong one is our own bug.
void RequireSize(size_t found, size_t expected, const char* what) {
  if (found == expected) return;
  spdlog::critical("Executor: {} has {} floats, expected {}", what, found, expected);
  std::abort();
}

void AddTo(absl::Span<const float> from, absl::Span<float> to) {
  const float* __restrict in = from.data();
  float* __restrict out = to.data();
  for (size_t i = 0; i < to.size(); ++i) out[i] += in[i];
}

}  // namespace

Executor::Executor(const Model& model) : model_(model) {
  PlanStorages();
  PlanSteps();
  Place(0);
  Resize(0);
}

absl::Span<float> Executor::Value(int32_t tensor) {
  const Storage& storage = storages_[storage_of_[tensor]];
  return {arena_.data() + storage.value_at, batch_ * storage.floats};
}

absl::Span<float> Executor::Gradient(int32_t storage) {
  return {arena_.data() + storages_[storage].gradient_at, batch_ * storages_[storage].floats};
}

absl::Span<float> Executor::dense() {
  return model_.dense_tensor() < 0 ? absl::Span<float>() : Value(model_.dense_tensor());
}
absl::Span<float> Executor::pooled(size_t input) { return Value(model_.inputs()[input].tensor); }
absl::Span<const float> Executor::pooled_gradient(size_t input) const {
  const Storage& storage = storages_[storage_of_[model_.inputs()[input].tensor]];
  return {arena_.data() + storage.gradient_at, batch_ * storage.floats};
}

void Executor::BindParameters(Step& step, absl::Span<const float> trained,
                              absl::Span<const float> statistics) {
  step.trained.clear();
  step.statistics.clear();
  const Graph& graph = model_.graph();
  for (const int32_t p : graph.nodes()[step.node].parameters) {
    const GraphParameter& parameter = graph.parameters()[p];
    (parameter.spec.trained ? step.trained : step.statistics)
        .push_back((parameter.spec.trained ? trained : statistics)
                       .subspan(parameter.offset, parameter.floats));
  }
}

void Executor::BindGradients(Step& step, absl::Span<float> trained, absl::Span<float> statistics) {
  step.trained_gradients.clear();
  step.statistics_gradients.clear();
  const Graph& graph = model_.graph();
  for (const int32_t p : graph.nodes()[step.node].parameters) {
    const GraphParameter& parameter = graph.parameters()[p];
    (parameter.spec.trained ? step.trained_gradients : step.statistics_gradients)
        .push_back((parameter.spec.trained ? trained : statistics)
                       .subspan(parameter.offset, parameter.floats));
  }
}

uint64_t Executor::RandomKey(int32_t node, uint64_t dropout_step, uint32_t rank) const {
  return StreamKey(RandomFor::kDropout, model_.seed(), dropout_step, rank,
                   static_cast<uint64_t>(node));
}

void Executor::RunForward(absl::Span<const float> trained, absl::Span<const float> statistics,
                          bool training, uint64_t dropout_step, uint32_t rank) {
  RequireSize(trained.size(), model_.trained_floats(), "trained");
  RequireSize(statistics.size(), model_.statistics_floats(), "statistics");
  for (Step& step : steps_) {
    BindParameters(step, trained, statistics);
    ForwardPass pass;
    pass.batch = batch_;
    pass.training = training;
    if (training) pass.random_key = RandomKey(step.node, dropout_step, rank);
    pass.inputs = step.inputs;
    pass.outputs = absl::MakeConstSpan(step.outputs);
    pass.trained = step.trained;
    pass.statistics = step.statistics;
    if (training) pass.kept = step.kept;
    pass.scratch = {arena_.data() + op_scratch_at_, op_scratch_floats_};
    model_.graph().nodes()[step.node].op->Forward(pass);
  }
}

void Executor::RunBackward(uint64_t dropout_step, uint32_t rank) {
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    if (!step->backward) continue;
    for (const int32_t storage : step->unread) {
      const absl::Span<float> gradient = Gradient(storage);
      std::fill(gradient.begin(), gradient.end(), 0.0f);
    }
    BackwardPass pass;
    pass.batch = batch_;
    pass.random_key = RandomKey(step->node, dropout_step, rank);
    pass.inputs = step->inputs;
    pass.outputs = step->output_values;
    pass.output_gradients = step->output_gradients;
    pass.trained = step->trained;
    pass.statistics = step->statistics;
    pass.kept = step->kept;
    pass.scratch = {arena_.data() + op_scratch_at_, op_scratch_floats_};
    pass.input_gradients = absl::MakeConstSpan(step->input_gradients);
    pass.trained_gradients = absl::MakeConstSpan(step->trained_gradients);
    pass.statistics_gradients = absl::MakeConstSpan(step->statistics_gradients);
    model_.graph().nodes()[step->node].op->Backward(pass);
    for (const Addition& addition : step->additions) {
      AddTo(step->input_gradients[addition.slot], Gradient(addition.storage));
    }
  }
}

absl::Span<const float> Executor::Forward(absl::Span<const float> trained,
                                          absl::Span<const float> statistics) {
  const ComputeThreadsScope threads;
  RunForward(trained, statistics, false, 0, 0);
  return Value(model_.graph().output());
}

Executor::StepResult Executor::ForwardBackward(absl::Span<const float> trained,
                                               absl::Span<const float> statistics,
                                               absl::Span<const float> labels, float loss_scale,
                                               uint64_t dropout_step, uint32_t rank,
                                               absl::Span<float> trained_gradient,
                                               absl::Span<float> statistics_gradient) {
  RequireSize(labels.size(), batch_, "labels");
  RequireSize(trained_gradient.size(), model_.trained_floats(), "trained_gradient");
  RequireSize(statistics_gradient.size(), model_.statistics_floats(), "statistics_gradient");
  const ComputeThreadsScope threads;
  RunForward(trained, statistics, true, dropout_step, rank);
  for (Step& step : steps_) BindGradients(step, trained_gradient, statistics_gradient);

  StepResult result;
  const int32_t output = model_.graph().output();
  result.logits = Value(output);
  const absl::Span<float> gradient = Gradient(storage_of_[output]);
  result.loss_sum = model_.loss().Evaluate(result.logits, labels, loss_scale, gradient);
  RunBackward(dropout_step, rank);
  return result;
}

}  // namespace tessera::worker

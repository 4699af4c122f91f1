#include "worker/dense/executor.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/functional/function_ref.h"
#include "common/log.h"
#include "common/random.h"
#include "worker/dense/parallel.h"

namespace tessera::worker {
namespace {

// The caller must give the right sizes; a wrong one is a bug of the program.
void RequireSize(size_t found, size_t expected, const char* what) {
  if (found == expected) return;
  spdlog::critical("Executor: {} has {} floats, expected {}", what, found, expected);
  std::abort();
}

void RequireSizes(const Model& model, absl::Span<const float> trained,
                  absl::Span<const float> statistics) {
  RequireSize(trained.size(), model.trained_floats(), "trained");
  RequireSize(statistics.size(), model.statistics_floats(), "statistics");
}

void AddTo(TaskPool* pool, absl::Span<const float> from, absl::Span<float> to) {
  const float* __restrict in = from.data();
  float* __restrict out = to.data();
  ForElements(pool, to.size(), [in, out](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) out[i] += in[i];
  });
}

// Runs all parts, at once if there is a pool.
void RunParts(TaskPool* pool, size_t parts, absl::FunctionRef<void(size_t)> run) {
  if (pool != nullptr) return pool->RunAll(parts, run);
  for (size_t part = 0; part < parts; ++part) run(part);
}

}  // namespace

Executor::Executor(const Model& model, bool whole_batches)
    : model_(model),
      pool_(nullptr),
      staged_inputs_(model.graph().inputs()),
      whole_batches_(whole_batches) {
  Plan();
}

Executor::Executor(const Model& model, TaskPool* pool, std::unique_ptr<cuda::Stream> stream)
    : model_(model),
      pool_(pool),
      stream_(std::move(stream)),
      staged_inputs_(model.graph().inputs()),
      whole_batches_(stream_ != nullptr) {
  Plan();
  if (stream_ != nullptr) {
    PlanRelus();
    card_step_ = std::make_unique<CardStep>(model_, *stream_);
    captures_.emplace(*stream_);
  }
  Place(0);
  Resize(0);
}

absl::Span<float> Executor::Value(int32_t tensor) {
  const Storage& storage = storages_[storage_of_[tensor]];
  return {arena() + storage.value_at, batch_ * storage.floats};
}

absl::Span<float> Executor::Gradient(int32_t storage) {
  return {arena() + storages_[storage].gradient_at, batch_ * storages_[storage].floats};
}

absl::Span<float> Executor::HostValue(int32_t tensor) const {
  const Storage& storage = storages_[storage_of_[tensor]];
  return {stream_ == nullptr ? arena() + storage.value_at : host_.data() + storage.staged_value_at,
          batch_ * storage.floats};
}

absl::Span<float> Executor::HostGradient(int32_t tensor) const {
  const Storage& storage = storages_[storage_of_[tensor]];
  return {stream_ == nullptr ? arena() + storage.gradient_at
                             : host_.data() + storage.staged_gradient_at,
          batch_ * storage.floats};
}

absl::Span<const float> Executor::output(size_t task) const {
  return HostValue(model_.graph().outputs()[task]);
}
absl::Span<float> Executor::dense() {
  return model_.dense_tensor() < 0 ? absl::Span<float>() : HostValue(model_.dense_tensor());
}
absl::Span<float> Executor::pooled(size_t input) {
  return HostValue(model_.inputs()[input].tensor);
}
absl::Span<float> Executor::length(size_t i) { return HostValue(model_.lengths()[i].tensor); }
absl::Span<const float> Executor::pooled_gradient(size_t input) const {
  return HostGradient(model_.inputs()[input].tensor);
}

absl::Span<float> Executor::card_pooled(size_t input) {
  return Value(model_.inputs()[input].tensor);
}
absl::Span<const float> Executor::card_pooled_gradient(size_t input) {
  return Gradient(storage_of_[model_.inputs()[input].tensor]);
}

void Executor::BindParameters(absl::Span<const float> trained, absl::Span<const float> statistics) {
  const Graph& graph = model_.graph();
  for (Step& step : steps_) {
    step.trained.clear();
    step.statistics.clear();
    for (const int32_t p : graph.nodes()[step.node].parameters) {
      const GraphParameter& parameter = graph.parameters()[p];
      (parameter.spec.trained ? step.trained : step.statistics)
          .push_back((parameter.spec.trained ? trained : statistics)
                         .subspan(parameter.offset, parameter.floats));
    }
  }
}

void Executor::BindGradients(absl::Span<float> trained, absl::Span<float> statistics) {
  const Graph& graph = model_.graph();
  for (Step& step : steps_) {
    step.trained_gradients.clear();
    step.statistics_gradients.clear();
    step.shared_gradients.clear();
    const GraphNode& node = graph.nodes()[step.node];
    float* shared = arena() + step.shared_gradients_at;
    for (const int32_t p : node.parameters) {
      const GraphParameter& parameter = graph.parameters()[p];
      const bool is_trained = parameter.spec.trained;
      const absl::Span<float> sum =
          (is_trained ? trained : statistics).subspan(parameter.offset, parameter.floats);
      auto& gradients = is_trained ? step.trained_gradients : step.statistics_gradients;
      if (node.parameters_of.empty()) {
        gradients.push_back(sum);
        continue;
      }
      gradients.push_back({shared, sum.size()});
      step.shared_gradients.push_back({gradients.back(), sum});
      shared += Buffer::RoundUp(sum.size());
    }
  }
}

uint64_t Executor::RandomKey(int32_t node, Draws draws) const {
  return StreamKey(RandomFor::kDropout, model_.seed(), draws.step, draws.rank,
                   static_cast<uint64_t>(node));
}

ForwardPass Executor::NewForwardPass(const Step& step, const Part& part, bool training,
                                     Draws draws) const {
  ForwardPass pass;
  pass.batch = part.batch;
  pass.first_sample = part.first;
  pass.whole_batch = batch_;
  pass.training = training;
  if (stream_ != nullptr) {
    pass.card_random_key = card_step_->random_key(step.node);
  } else if (training) {
    pass.random_key = RandomKey(step.node, draws);
  }
  pass.inputs = part.inputs;
  pass.outputs = absl::MakeConstSpan(part.outputs);
  pass.trained = step.trained;
  pass.statistics = step.statistics;
  if (training) pass.kept = part.kept;
  if (step.op->UsesRoom()) pass.room = part.kept;
  if (training) pass.shared = {arena() + step.shared_at, step.op->SharedFloats()};
  pass.scratch = {arena() + op_scratch_at_, op_scratch_floats_};
  // Parts already run at once, so a part gets no pool.
  pass.pool = part.batch == batch_ ? pool_ : nullptr;
  // What is not trained has the numbers of the model's exported file.
  if (training) pass.precision = model_.precision();
  pass.relu = step.relu;
  return pass;
}

BackwardPass Executor::NewBackwardPass(const Step& step, const Part& part, Draws draws) const {
  BackwardPass pass;
  pass.batch = part.batch;
  pass.first_sample = part.first;
  pass.whole_batch = batch_;
  if (stream_ != nullptr) {
    pass.card_random_key = card_step_->random_key(step.node);
  } else {
    pass.random_key = RandomKey(step.node, draws);
  }
  pass.inputs = part.inputs;
  pass.outputs = part.output_values;
  pass.output_gradients = part.output_gradients;
  pass.trained = step.trained;
  pass.statistics = step.statistics;
  pass.kept = part.kept;
  pass.shared = {arena() + step.shared_at, step.op->SharedFloats()};
  pass.scratch = {arena() + op_scratch_at_, op_scratch_floats_};
  pass.pool = part.batch == batch_ ? pool_ : nullptr;
  pass.precision = model_.precision();
  pass.input_gradients = absl::MakeConstSpan(part.input_gradients);
  pass.trained_gradients = absl::MakeConstSpan(step.trained_gradients);
  pass.statistics_gradients = absl::MakeConstSpan(step.statistics_gradients);
  pass.statistics_share = step.statistics_share;
  return pass;
}

// Both passes go through the steps in chains (PlanBackward). A chain runs part by part, so that a
// step finds the output of the step before it in the cache, and threads meet once per chain.
void Executor::RunForward(absl::Span<const float> trained, absl::Span<const float> statistics,
                          bool training, Draws draws) {
  BindParameters(trained, statistics);
  const auto runs = [training](const Step& step) { return training || !step.training_only; };
  for (size_t begin = 0, end = 0; begin < steps_.size(); begin = end) {
    end = begin + 1;
    if (!runs(steps_[begin])) continue;
    const Op& op = *steps_[begin].op;
    const ForwardPass whole = NewForwardPass(steps_[begin], steps_[begin].whole, training, draws);
    if (training && op.Prepares()) op.PrepareForward(whole);
    if (!op.BySample()) {
      op.Forward(whole);
      continue;
    }
    while (end < steps_.size() && steps_[end].op->BySample() &&
           !(training && steps_[end].op->Prepares())) {
      ++end;
    }
    const auto run = [&](size_t part) {
      for (size_t s = begin; s < end; ++s) {
        if (!runs(steps_[s])) continue;
        steps_[s].op->Forward(NewForwardPass(steps_[s], steps_[s].parts[part], training, draws));
      }
    };
    RunParts(pool_, parts_, run);
  }
}

// Runs the step backward and adds to gradients that other steps write too.
void Executor::Backward(const Step& step, const Part& part, Draws draws) {
  step.op->Backward(NewBackwardPass(step, part, draws));
  TaskPool* const pool = part.batch == batch_ ? pool_ : nullptr;
  for (const Addition& addition : step.additions) {
    const size_t floats = storages_[addition.storage].floats;
    AddTo(pool, part.input_gradients[addition.slot],
          Gradient(addition.storage).subspan(part.first * floats, part.batch * floats));
  }
}

void Executor::RunBackward(Draws draws) {
  for (const BackwardChain& chain : backward_) {
    const Step& last = steps_[chain.end - 1];
    for (size_t s = chain.begin; s < chain.end; ++s) {
      for (const int32_t storage : steps_[s].unread) {
        const absl::Span<float> gradient = Gradient(storage);
        std::fill(gradient.begin(), gradient.end(), 0.0f);
      }
    }
    if (last.op->Prepares()) last.op->PrepareBackward(NewBackwardPass(last, last.whole, draws));
    if (last.op->BySample()) {
      const auto run = [&](size_t part) {
        for (size_t s = chain.end; s > chain.begin; --s) {
          Backward(steps_[s - 1], steps_[s - 1].parts[part], draws);
        }
      };
      RunParts(pool_, parts_, run);
    } else {
      Backward(last, last.whole, draws);
    }
    for (size_t s = chain.end; s > chain.begin; --s) {
      const Step& step = steps_[s - 1];
      step.op->ParameterGradients(NewBackwardPass(step, step.whole, draws));
    }
  }
  AddShared();
}

void Executor::AddShared() {
  for (const Step& step : steps_) {
    for (const SharedGradient& shared : step.shared_gradients) AddTo(pool_, shared.from, shared.to);
  }
}

absl::Span<const float> Executor::Forward(absl::Span<const float> trained,
                                          absl::Span<const float> statistics) {
  StartForward(trained, statistics);
  return FinishForward();
}

void Executor::StartForward(absl::Span<const float> trained, absl::Span<const float> statistics) {
  RequireSizes(model_, trained, statistics);
  if (stream_ != nullptr) return StartForwardOnCard(trained, statistics);
  RunForward(trained, statistics, false, {});
}

absl::Span<const float> Executor::FinishForward() {
  if (stream_ != nullptr) stream_->Synchronize();
  return HostValue(model_.graph().output());
}

void Executor::StartStep(const StepArguments& arguments) {
  const Targets& targets = arguments.targets;
  RequireSizes(model_, arguments.trained, arguments.statistics);
  RequireSize(arguments.trained_gradient.size(), model_.trained_floats(), "trained_gradient");
  RequireSize(arguments.statistics_gradient.size(), model_.statistics_floats(),
              "statistics_gradient");
  RequireSize(targets.labels.size(), batch_ * targets.label_width, "labels");
  if (!targets.weights.empty()) RequireSize(targets.weights.size(), batch_, "weights");
  if (model_.ranks()) RequireSize(targets.groups.size(), batch_, "groups");
  trained_gradient_ = arguments.trained_gradient;
  statistics_gradient_ = arguments.statistics_gradient;
  result_ = StepResult();
  result_.logits = HostValue(model_.graph().output());
  if (stream_ != nullptr) return StartStepOnCard(arguments);
  const Draws draws = {arguments.dropout_step, arguments.rank};
  BindGradients(trained_gradient_, statistics_gradient_);
  RunForward(arguments.trained, arguments.statistics, true, draws);
  result_.loss_sum = EvaluateLosses(targets, arguments.loss_scale);
  RunBackward(draws);
}

double Executor::EvaluateLosses(const Targets& targets, float loss_scale) {
  if (model_.ranks()) SortByGroup(targets.groups, &group_order_);
  double sum = 0;
  const std::vector<int32_t>& outputs = model_.graph().outputs();
  for (size_t task = 0; task < outputs.size(); ++task) {
    sum +=
        model_.losses()[task].Evaluate(HostValue(outputs[task]), model_.OutputWidth(task), targets,
                                       group_order_, loss_scale, HostGradient(outputs[task]));
  }
  for (const GraphLoss& loss : model_.graph().losses()) {
    sum += AddedLoss(HostValue(loss.tensor), loss.weight, targets, loss_scale,
                     HostGradient(loss.tensor));
  }
  return sum;
}

Executor::StepResult Executor::FinishStep() {
  if (stream_ == nullptr || !stream_->Synchronize().ok()) return result_;
  result_.loss_sum = card_step_->LossSum();
  result_.finite = gradient_scale_ == 1 || card_step_->finite();
  card_step_->CopyGradients(keeps_parameters_ ? absl::Span<float>() : trained_gradient_,
                            statistics_gradient_);
  return result_;
}

}  // namespace tessera::worker

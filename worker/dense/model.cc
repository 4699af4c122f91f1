#include "worker/dense/model.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/job/tasks.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "common/suggest.h"
#include "worker/dense/layers.h"
#include "worker/dense/model_inputs.h"

namespace tessera::worker {
namespace {

void Fill(const GraphParameter& parameter, uint64_t seed, absl::Span<float> values) {
  const auto [kind, value] = parameter.spec.initializer;
  const uint64_t key = StreamKey(RandomFor::kInitialDense, seed, NameHash(parameter.name));
  switch (kind) {
    case Initializer::Kind::kConstant:
      std::fill(values.begin(), values.end(), value);
      return;
    case Initializer::Kind::kNormal:
      for (size_t i = 0; i < values.size(); ++i) values[i] = value * RandomNormal(key, i);
      return;
    case Initializer::Kind::kUniform:
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = value * (2 * RandomUniform(key, i) - 1);
      return;
  }
}

Precision PrecisionOf(v1::TrainSpec::Precision precision) {
  switch (precision) {
    case v1::TrainSpec::BFLOAT16:
      return Precision::kBfloat16;
    case v1::TrainSpec::TF32:
      return Precision::kTf32;
    case v1::TrainSpec::FLOAT16:
      return Precision::kFloat16;
    default:
      return Precision::kFloat32;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> Model::New(const v1::JobSpec& spec, uint32_t dense_width,
                                                  BuildNetwork build) {
  TESSERA_RETURN_IF_ERROR(CheckLosses(spec));  // refuses losses of a later version, too
  const ModelInputs inputs = InputsOf(spec);
  if (inputs.dense_width != dense_width) {
    return absl::InternalError(absl::StrCat("the dense columns of the spec are ",
                                            inputs.dense_width, " wide, those of the batches ",
                                            dense_width));
  }
  GraphBuilder builder;
  std::unique_ptr<Model> model(new Model);
  model->seed_ = spec.seed();
  model->precision_ = PrecisionOf(spec.train().precision());
  model->dense_width_ = dense_width;
  if (dense_width > 0) {
    model->dense_tensor_ = builder.Input(kDenseInput, {dense_width}, false).index;
  }
  for (const ModelInputs::Table& table : inputs.tables) {
    const auto fields = static_cast<uint32_t>(table.columns.size());
    const Tensor tensor = builder.Input(table.name, {fields, table.dim}, true);
    model->inputs_.push_back({table.name, table.index, fields, table.dim, tensor.index});
  }
  for (const ModelInputs::Sequence& sequence : inputs.sequences) {
    const uint32_t rows = sequence.max_length;
    for (const ModelInputs::Table& table : sequence.tables) {
      const Tensor tensor =
          builder.Input(SequenceInput(sequence.column, table.name), {rows, table.dim}, true);
      model->inputs_.push_back(
          {table.name, table.index, rows, table.dim, tensor.index, sequence.column});
    }
    model->lengths_.push_back(
        {sequence.sparse_index, builder.Input(LengthInput(sequence.column), {1}, false).index});
  }
  Network network = build(inputs, builder);
  model->starts_ = std::move(network.starts);
  model->options_ = std::move(network.options);
  std::vector<GraphBuilder::Output> outputs;
  for (const JobTask& task : TasksOf(spec)) {
    model->losses_.push_back(LossFunction::Of(task));
    const bool classes = OutputsOf(task.loss) == math::Outputs::kClasses;
    if (task.name.empty()) {
      outputs.push_back({network.output, classes, "model: the model"});
      continue;
    }
    const std::string path = absl::StrCat("model.tasks[", outputs.size(), "]");
    const Tensor tensor =
        network.of_tasks.empty() ? builder.Find(task.output) : network.of_tasks[outputs.size()];
    if (tensor.index < 0) {
      const bool of_zoo = spec.model().name() != kLayersModel;
      builder.Fail(absl::InvalidArgumentError(absl::StrCat(
          path, ".output: unknown tensor \"", task.output, "\"; ",
          SuggestName(task.output, builder.TensorNames()),
          of_zoo
              ? " (of the zoo, mmoe and shared_bottom have a tensor for each task, named like it)"
              : "")));
    }
    outputs.push_back(
        {tensor, classes, absl::StrCat(path, ": the task \"", task.name, "\""), task.classes});
  }
  TESSERA_ASSIGN_OR_RETURN(model->graph_, builder.Build(outputs));
  std::erase_if(model->inputs_,
                [&](const Input& input) { return !model->graph_->IsUsed(input.tensor); });
  std::erase_if(model->lengths_,
                [&](const Length& length) { return !model->graph_->IsUsed(length.tensor); });
  return model;
}

bool Model::ranks() const {
  return std::any_of(losses_.begin(), losses_.end(),
                     [](const LossFunction& loss) { return IsRanking(loss.kind); });
}

uint32_t Model::OutputWidth(size_t task) const {
  return static_cast<uint32_t>(graph_->tensors()[graph_->outputs()[task]].shape.floats());
}

void Model::InitialParameters(absl::Span<float> trained, absl::Span<float> statistics) const {
  for (const GraphParameter& parameter : graph_->parameters()) {
    const absl::Span<float> all = parameter.spec.trained ? trained : statistics;
    const absl::Span<float> values = all.subspan(parameter.offset, parameter.floats);
    const auto start = starts_.find(parameter.name);
    if (start == starts_.end()) {
      Fill(parameter, seed_, values);
    } else {
      std::copy_n(start->second.begin(), std::min(values.size(), start->second.size()),
                  values.begin());
    }
  }
}

}  // namespace tessera::worker

#include "tests/bench/dense_models.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "tests/worker/dense_step.h"
#include "worker/new_model.h"

namespace tessera::bench {
namespace {

using worker::Model;

google::protobuf::Value ListOf(const std::vector<int64_t>& numbers) {
  google::protobuf::Value value;
  for (const int64_t number : numbers) {
    value.mutable_list_value()->add_values()->set_number_value(static_cast<double>(number));
  }
  return value;
}

v1::TrainSpec::Precision PrecisionOf(worker::Precision precision) {
  switch (precision) {
    case worker::Precision::kBfloat16:
      return v1::TrainSpec::BFLOAT16;
    case worker::Precision::kTf32:
      return v1::TrainSpec::TF32;
    case worker::Precision::kFloat16:
      return v1::TrainSpec::FLOAT16;
    case worker::Precision::kFloat32:
      break;
  }
  return v1::TrainSpec::FLOAT32;
}

v1::JobSpec JobOf(const DenseShape& shape) {
  v1::JobSpec spec;
  spec.set_seed(1);
  spec.mutable_model()->set_name(shape.model);
  auto& options = *spec.mutable_model()->mutable_options()->mutable_fields();
  options["hidden"] = ListOf(shape.hidden);
  if (!shape.bottom.empty()) options["bottom"] = ListOf(shape.bottom);
  if (shape.regularised) {
    options["batch_norm"].set_bool_value(true);
    options["dropout"].set_number_value(0.2);
  }
  const auto add_column = [&](const std::string& name, v1::ColumnRole role) {
    auto* column = spec.mutable_data()->add_columns();
    column->set_name(name);
    column->set_role(role);
    return column;
  };
  add_column("label", v1::LABEL);
  for (uint32_t i = 0; i < shape.dense; ++i) add_column(absl::StrCat("d", i), v1::DENSE);
  for (uint32_t i = 0; i < shape.fields; ++i) {
    auto* column = add_column(absl::StrCat("c", i), v1::SPARSE);
    if (shape.linear) column->add_table("linear");
    column->add_table("embedding");
  }
  const auto add_table = [&](const std::string& name, uint32_t dim) {
    auto* table = spec.add_tables();
    table->set_name(name);
    table->set_dim(dim);
  };
  if (shape.linear) add_table("linear", 1);
  add_table("embedding", shape.dim);
  spec.mutable_train()->set_precision(PrecisionOf(shape.precision));
  return spec;
}

void FillNormal(uint64_t seed, absl::Span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) values[i] = 0.5f * RandomNormal(seed, i);
}

void AddLayers(const std::vector<int64_t>& widths, bool first_input_gradient,
               std::vector<DenseLayer>* layers) {
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    layers->push_back({widths[i], widths[i + 1], i > 0 || first_input_gradient});
  }
}

}  // namespace

DenseShape DeepFmShape() {
  return {.model = "deepfm",
          .fields = 10,
          .dim = 10,
          .batch = 4096,
          .linear = true,
          .bottom = {},
          .hidden = {400, 400, 400}};
}

DenseShape DlrmShape() {
  return {.model = "dlrm",
          .fields = 26,
          .dim = 16,
          .dense = 13,
          .batch = 2048,
          .bottom = {512, 256},
          .hidden = {512, 256}};
}

DenseStep::DenseStep(const DenseShape& shape, TaskPool* pool, std::unique_ptr<cuda::Stream> stream)
    : model_(worker::NewModel(JobOf(shape), shape.dense).value()),
      executor_(*model_, pool, std::move(stream)),
      trained_(model_->trained_floats()),
      statistics_(model_->statistics_floats()),
      trained_gradient_(trained_.size()),
      statistics_gradient_(statistics_.size()),
      labels_(shape.batch) {
  if (executor_.stream() != nullptr) executor_.PoolOnCard();
  model_->InitialParameters(absl::MakeSpan(trained_), absl::MakeSpan(statistics_));
  executor_.Resize(shape.batch);
  if (!executor_.status().ok()) return;
  FillNormal(1, executor_.dense());
  for (size_t i = 0; i < model_->inputs().size(); ++i) FillInput(i);
  for (size_t i = 0; i < labels_.size(); ++i) labels_[i] = i % 3 == 0 ? 1 : 0;
}

void DenseStep::FillInput(size_t input) {
  if (executor_.stream() == nullptr) return FillNormal(2 + input, executor_.pooled(input));
  const absl::Span<float> on_card = executor_.card_pooled(input);
  std::vector<float> values(on_card.size());
  FillNormal(2 + input, absl::MakeSpan(values));
  executor_.stream()->CopyToDevice(values.data(), on_card.data(), values.size());
  executor_.stream()->Synchronize();
}

double DenseStep::Run() {
  return worker::testing::ForwardBackward(
             executor_, {.trained = trained_,
                         .statistics = statistics_,
                         .targets = labels_,
                         .loss_scale = 1.0f / static_cast<float>(labels_.size()),
                         .dropout_step = ++step_,
                         .trained_gradient = absl::MakeSpan(trained_gradient_),
                         .statistics_gradient = absl::MakeSpan(statistics_gradient_)})
      .loss_sum;
}

std::vector<DenseLayer> DenseLayers(const DenseShape& shape) {
  std::vector<DenseLayer> layers;
  std::vector<int64_t> top = {shape.fields * shape.dim + shape.dense};
  if (!shape.bottom.empty()) {
    std::vector<int64_t> bottom = {shape.dense};
    bottom.insert(bottom.end(), shape.bottom.begin(), shape.bottom.end());
    bottom.push_back(shape.dim);
    AddLayers(bottom, false, &layers);
    const int64_t vectors = shape.fields + 1;
    top = {shape.dim + vectors * (vectors - 1) / 2};
  }
  top.insert(top.end(), shape.hidden.begin(), shape.hidden.end());
  top.push_back(1);
  AddLayers(top, true, &layers);
  return layers;
}

}  // namespace tessera::bench

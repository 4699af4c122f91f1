#include "worker/onnx/export.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/tasks.h"
#include "common/math/bfloat16.h"
#include "common/status_macros.h"
#include "worker/onnx/embeddings.h"
#include "worker/onnx/emit.h"

namespace tessera::worker {
namespace {

// Writes the file's outputs that are computed from a task's output `raw`, [batch, width].
void WriteOutputs(const JobTask& task, const std::string& raw, int64_t width,
                  const std::string& prediction, OnnxWriter& onnx) {
  const math::Outputs kind = OutputsOf(task.loss);
  if (kind == math::Outputs::kClasses) {
    const std::string best = onnx.Value(raw + "/best", "ArgMax", {raw},
                                        {{"axis", int64_t{1}}, {"keepdims", int64_t{1}}});
    onnx.Node("Cast", {best}, {prediction}, {{"to", int64_t{onnx::TensorProto::FLOAT}}});
    const std::string probability = onnx.Unique(task.MetricName("probability"));
    onnx.Node("Softmax", {raw}, {probability}, {{"axis", int64_t{1}}});
    onnx.Output(prediction, {1});
    onnx.Output(probability, {width});
    onnx.Output(raw, {width});
    return;
  }
  const bool logits = kind == math::Outputs::kLogits;
  if (logits) onnx.Node("Sigmoid", {raw}, {prediction});
  onnx.Output(prediction, {1});
  if (logits) onnx.Output(raw, {1});
}

absl::Status CheckOps(const Graph& graph) {
  std::vector<std::string> missing;
  for (const GraphNode& node : graph.nodes()) {
    if (!node.training_only && FindEmitter(node.op_name) == nullptr) {
      missing.push_back(absl::StrCat(node.op_name, " (layer \"", node.name, "\")"));
    }
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("the model has ops without a form in ONNX: ", absl::StrJoin(missing, ", ")));
}

}  // namespace

float ServedValue(const v1::TableSpec& table, float value) {
  const bool rounds = table.row_type() == v1::BFLOAT16 || table.wire_type() == v1::BFLOAT16;
  return rounds ? math::RoundedToBfloat16(value) : value;
}

float UnseenValue(const v1::TableSpec& table) {
  const v1::InitializerSpec& initializer = table.initializer();
  const float mean = initializer.has_uniform()
                         ? (initializer.uniform().min() + initializer.uniform().max()) / 2
                     : initializer.has_normal() ? initializer.normal().mean()
                                                : initializer.constant().value();
  return ServedValue(table, mean);
}

absl::StatusOr<onnx::ModelProto> ExportModel(const v1::JobSpec& spec, const Model& model,
                                             absl::Span<const float> trained,
                                             absl::Span<const float> statistics,
                                             const std::map<std::string, InlineTable>& tables) {
  const Graph& graph = model.graph();
  TESSERA_RETURN_IF_ERROR(CheckOps(graph));
  OnnxWriter onnx;
  TESSERA_ASSIGN_OR_RETURN(auto names, WriteInputs(spec, model, tables, onnx));
  if (names.empty()) return absl::UnimplementedError("the model reads no column");
  const std::vector<JobTask> tasks = TasksOf(spec);
  std::vector<std::string> predictions;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const math::Outputs kind = OutputsOf(tasks[i].loss);
    const bool logits = kind == math::Outputs::kLogits || kind == math::Outputs::kClasses;
    predictions.push_back(onnx.Unique(tasks[i].MetricName("prediction")));
    names[graph.outputs()[i]] =
        logits ? onnx.Unique(tasks[i].MetricName("logit")) : predictions.back();
  }
  for (const GraphNode& node : graph.nodes()) {
    if (node.training_only) continue;
    Emission e{graph,      node, OptionReader(node.options, "options"), {}, {}, trained,
               statistics, onnx};
    for (const int32_t tensor : node.inputs) e.in.push_back(names.at(tensor));
    for (const int32_t tensor : node.outputs) {
      if (!names.contains(tensor)) names[tensor] = onnx.Unique(graph.tensors()[tensor].name);
      e.out.push_back(names[tensor]);
    }
    FindEmitter(node.op_name)(e);
    if (!e.options.error().ok()) {
      return absl::InternalError(absl::StrCat(
          "layer \"", node.name, "\" cannot be written: ", e.options.error().message()));
    }
  }
  for (size_t i = 0; i < tasks.size(); ++i) {
    WriteOutputs(tasks[i], names.at(graph.outputs()[i]), model.OutputWidth(i), predictions[i],
                 onnx);
  }
  onnx::ModelProto file = onnx.Finish(spec.name().empty() ? "tessera" : spec.name());
  if (const size_t bytes = file.ByteSizeLong(); bytes > INT32_MAX) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the file would take ", bytes,
                     " bytes, more than the 2 GB that an ONNX file may; inline fewer rows"));
  }
  return file;
}

}  // namespace tessera::worker

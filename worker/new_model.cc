#include "worker/new_model.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/dense/layers.h"
#include "worker/onnx/import.h"
#include "worker/zoo/zoo.h"

namespace tessera::worker {
namespace {

absl::Status CheckFields(const v1::ModelSpec& model) {
  const auto misplaced = [&](absl::string_view field, absl::string_view owner) {
    return absl::InvalidArgumentError(absl::StrCat("model.", field, ": belongs to ", owner,
                                                   "; model.name is \"", model.name(), "\""));
  };
  if (model.name() == kLayersModel) {
    if (model.options().fields_size() > 0) return misplaced("options", "the models of the zoo");
    return absl::OkStatus();
  }
  if (model.layers_size() > 0) return misplaced("layers", "the model \"layers\"");
  if (model.name() == kOnnxModel) return absl::OkStatus();
  if (!model.output().empty()) return misplaced("output", "the models \"layers\" and \"onnx\"");
  return absl::OkStatus();
}

Network NetworkOf(const v1::ModelSpec& model, absl::string_view onnx_file,
                  const ModelInputs& inputs, GraphBuilder& graph) {
  Network network;
  if (model.name() == kOnnxModel) {
    network.of_tasks = BuildOnnx(model, inputs, onnx_file, graph, &network.starts);
    if (!network.of_tasks.empty()) network.output = network.of_tasks[0];
  } else if (model.name() == kLayersModel) {
    network.output = BuildLayers(model, inputs, graph);
  } else {
    network.output = BuildZooModel(model, inputs, graph, &network.options);
  }
  return network;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> NewModel(const v1::JobSpec& spec, uint32_t dense_width,
                                                absl::string_view onnx_file) {
  TESSERA_RETURN_IF_ERROR(CheckFields(spec.model()));
  return Model::New(spec, dense_width, [&](const ModelInputs& inputs, GraphBuilder& graph) {
    return NetworkOf(spec.model(), onnx_file, inputs, graph);
  });
}

}  // namespace tessera::worker

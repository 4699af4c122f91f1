#include "worker/dense/layers.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace tessera::worker {
namespace {

// Finds the tensor that a layer names: one that is there already, or the part of an input that
// belongs to one column, cut out when first asked for. Index -1: no such name.
class InputNames {
 public:
  InputNames(const ModelInputs& inputs, GraphBuilder& graph) : inputs_(inputs), graph_(graph) {}

  Tensor Find(const std::string& name) {
    if (const Tensor known = graph_.Find(name); known.index >= 0) return known;
    for (const auto& column : inputs_.dense_columns) {
      if (column.name != name) continue;
      return graph_.Add(name, "Slice", {graph_.Find(kDenseInput)},
                        Options()
                            .Set("axis", 1.0)
                            .Set("start", static_cast<double>(column.offset))
                            .Set("end", static_cast<double>(column.offset + column.width)));
    }
    for (const auto& table : inputs_.tables) {
      for (size_t i = 0; i < table.columns.size(); ++i) {
        if (name != absl::StrCat(table.columns[i], ".", table.name)) continue;
        const double at = static_cast<double>(i);
        const Tensor row =
            graph_.Add(absl::StrCat(name, "/row"), "Slice", {graph_.Find(table.name)},
                       Options().Set("axis", 1.0).Set("start", at).Set("end", at + 1));
        return graph_.Add(name, "Flatten", {row});
      }
    }
    return {};
  }

  // What the data calls by that name, read or not: "the column "price"". Empty: nothing.
  std::string OwnerOf(const std::string& name) const {
    for (const auto& column : inputs_.dense_columns) {
      if (column.name == name) return absl::StrCat("the column \"", name, "\"");
    }
    for (const auto& table : inputs_.tables) {
      for (const std::string& column : table.columns) {
        if (name != absl::StrCat(column, ".", table.name)) continue;
        return absl::StrCat("the column \"", column, "\" in the table \"", table.name, "\"");
      }
    }
    return "";
  }

  // Whether both a dense column and a table have the name: Find takes it for the table's.
  bool IsOfTwo(const std::string& name) const {
    return inputs_.FindTable(name) != nullptr &&
           std::any_of(inputs_.dense_columns.begin(), inputs_.dense_columns.end(),
                       [&](const auto& column) { return column.name == name; });
  }

  std::vector<std::string> Known() const {
    std::vector<std::string> names;
    for (const std::string& name : graph_.TensorNames()) {
      if (!absl::EndsWith(name, "/row")) names.push_back(name);
    }
    for (const auto& column : inputs_.dense_columns) names.push_back(column.name);
    for (const auto& table : inputs_.tables) {
      for (const std::string& column : table.columns) {
        names.push_back(absl::StrCat(column, ".", table.name));
      }
    }
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
  }

 private:
  const ModelInputs& inputs_;
  GraphBuilder& graph_;
};

absl::Status UnknownName(const std::string& what, const std::string& name,
                         const InputNames& names) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " \"", name, "\"", KnownNames(name, names.Known())));
}

absl::Status AddLayer(const v1::LayerSpec& layer, InputNames& names, GraphBuilder& graph) {
  if (layer.name().empty()) return absl::InvalidArgumentError("name: must be set");
  if (layer.op().empty()) return absl::InvalidArgumentError("op: must be set");
  std::vector<Tensor> inputs;
  for (const std::string& input : layer.inputs()) {
    if (names.IsOfTwo(input)) {
      return absl::InvalidArgumentError(
          absl::StrCat("layer \"", layer.name(), "\": its input \"", input,
                       "\" is the name of a dense column and of a table; rename one of them"));
    }
    inputs.push_back(names.Find(input));
    if (inputs.back().index < 0) {
      return UnknownName(absl::StrCat("layer \"", layer.name(), "\": unknown input"), input, names);
    }
  }
  std::vector<std::string> outputs(layer.outputs().begin(), layer.outputs().end());
  if (outputs.empty()) outputs.push_back(layer.name());
  for (const std::string& output : outputs) {
    const std::string owner = names.OwnerOf(output);
    if (owner.empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat("layer \"", layer.name(), "\": the name \"",
                                                   output, "\" is taken by ", owner));
  }
  graph.AddNamed(layer.name(), layer.op(), inputs, layer.options(), outputs, layer.parameters_of());
  return graph.status();
}

}  // namespace

Tensor BuildLayers(const v1::ModelSpec& model, const ModelInputs& inputs, GraphBuilder& graph) {
  InputNames names(inputs, graph);
  if (model.layers().empty()) {
    graph.Fail(absl::InvalidArgumentError(
        "model.layers: the model \"layers\" needs at least one layer (name, op, inputs)"));
    return {};
  }
  std::string last;
  for (int i = 0; i < model.layers_size(); ++i) {
    const v1::LayerSpec& layer = model.layers(i);
    const absl::Status added = AddLayer(layer, names, graph);
    if (!added.ok()) {
      graph.Replace(WithContext(added, absl::StrCat("model.layers[", i, "]")));
      return {};
    }
    last = layer.outputs().empty() ? layer.name() : layer.outputs(layer.outputs_size() - 1);
  }
  // Tasks name their outputs themselves.
  if (!model.tasks().empty()) return graph.Find(last);
  const std::string& output = model.output().empty() ? last : model.output();
  const Tensor tensor = graph.Find(output);
  if (tensor.index < 0) graph.Fail(UnknownName("model.output: unknown output", output, names));
  return tensor;
}

Tensor FindLayerInput(const std::string& name, const ModelInputs& inputs, GraphBuilder& graph) {
  return InputNames(inputs, graph).Find(name);
}

std::vector<std::string> KnownLayerInputs(const ModelInputs& inputs, GraphBuilder& graph) {
  return InputNames(inputs, graph).Known();
}

}  // namespace tessera::worker

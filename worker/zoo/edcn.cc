#include "absl/strings/str_cat.h"
#include "worker/zoo/model_parts.h"

namespace tessera::worker {
namespace {

struct GateShape {
  int64_t fields = 0;
  double temperature = 1;
  bool batch_norm = false;
};

// The regulation module of the paper: every field is weighted by a trained gate, the
// softmax of a vector over the temperature; x [batch, fields * dim].
Tensor Regulate(ModelParts& parts, const std::string& name, Tensor x, const GateShape& shape) {
  GraphBuilder& graph = parts.graph();
  const int64_t width = parts.Size(x, 0);
  const auto reshape = [&](const std::string& what, Tensor t, std::vector<int64_t> dims) {
    return graph.Add(absl::StrCat(name, "/", what), "Reshape", {t}, Options().Set("shape", dims));
  };
  Tensor gates = graph.Add(name + "/gates", "Parameter", {},
                           Options().Set("shape", std::vector<int64_t>{shape.fields, 1}));
  if (shape.temperature != 1) {
    const Tensor temperature = graph.Add(
        name + "/temperature", "Constant", {},
        Options().Set("shape", std::vector<int64_t>{1, 1}).Set("value", shape.temperature));
    gates = graph.Add(name + "/softer", "Div", {gates, temperature});
  }
  const Tensor weights =
      graph.Add(name + "/weights", "Softmax", {gates}, Options().Set("axis", 1.0));
  const Tensor gated =
      graph.Add(name + "/gated", "Mul", {reshape("fields", x, {0, shape.fields, -1}), weights});
  const Tensor flat = reshape("flat", gated, {0, width});
  return shape.batch_norm ? graph.Add(name + "/batch_norm", "BatchNormalization", {flat}) : flat;
}

}  // namespace

// EDCN (Chen et al. 2021, "Enhancing Explicit and Implicit Feature Interactions via Information
// Sharing for Parallel Deep CTR Models", CIKM): DCN whose cross and deep layers meet in a bridge
// after each layer; each side takes its input from the bridge through gates over fields. Options:
// cross_layers (3); bridge, hadamard or add (hadamard); regulation (true), its temperature (1) and
// gate_batch_norm, behind the gates (batch_norm); activation, batch_norm (false), dropout (0) of
// the deep layers, which are as wide as all fields; linear_table names a table that is left out.
Tensor BuildEdcn(ModelParts& parts) {
  OptionReader& options = parts.options();
  GraphBuilder& graph = parts.graph();
  const int64_t layers = options.Int("cross_layers", 3, 1, 100);
  const std::string bridge = options.Choice("bridge", "hadamard", {"add", "hadamard"});
  const bool regulation = options.Bool("regulation", true);
  ModelParts::MlpShape mlp = parts.ReadMlp({{}, "relu", false, 0});
  if (!mlp.hidden.empty()) options.Fail("hidden", "the deep layers are as wide as all fields");
  GateShape gate;
  gate.temperature = options.Number("temperature", 1, 1e-3, 1e3);
  gate.batch_norm = options.Bool("gate_batch_norm", mlp.batch_norm);

  const Tensor vectors = parts.AllFieldVectors();
  gate.fields = parts.Size(vectors, 0);
  Tensor shared = graph.Add("edcn/features", "Flatten", {vectors});
  mlp.hidden = {parts.Size(shared, 0)};
  Tensor x0, cross, deep;
  for (int64_t i = 1; i <= layers; ++i) {
    const std::string layer = absl::StrCat(i);
    cross = deep = shared;
    if (regulation) {
      cross = Regulate(parts, "cross_gate/" + layer, shared, gate);
      deep = Regulate(parts, "deep_gate/" + layer, shared, gate);
    }
    if (i == 1) x0 = cross;
    cross = parts.Cross("cross/" + layer, x0, cross);
    deep = parts.Hidden("deep/" + layer, deep, mlp);
    shared = graph.Add("bridge/" + layer, bridge == "add" ? "Add" : "Mul", {cross, deep});
  }
  return parts.Linear("model/logit", parts.Concat("model/features", {cross, deep, shared}), 1);
}

}  // namespace tessera::worker

#include "absl/strings/str_cat.h"
#include "worker/zoo/models.h"

namespace tessera::worker {
namespace {

// A block of factorized interaction layers (equation 4 of the paper): the two halves of a linear
// map, h1 + h1 * h2.
Tensor Block(ModelParts& parts, const std::string& name, Tensor x,
             const ModelParts::MlpShape& shape) {
  GraphBuilder& graph = parts.graph();
  for (size_t i = 0; i < shape.hidden.size(); ++i) {
    const std::string layer = absl::StrCat(name, "/", i + 1);
    const Tensor both = parts.Linear(layer + "/linear", x, 2 * shape.hidden[i]);
    const std::vector<Tensor> halves =
        graph.AddNamed(layer + "/halves", "Split", {both}, Options().Set("num_outputs", 2.0),
                       {layer + "/first", layer + "/second"});
    const Tensor product = graph.Add(layer + "/product", "Mul", halves);
    x = parts.Activate(layer, graph.Add(layer + "/sum", "Add", {halves[0], product}), shape);
  }
  return x;
}

// Fields, and beside them fields that are gated by a linear map over fields that starts as 1.
Tensor GateFields(ModelParts& parts, Tensor fields) {
  GraphBuilder& graph = parts.graph();
  const auto turned = [&](const std::string& name, Tensor x) {
    return graph.Add(name, "Transpose", {x}, Options().Set("perm", std::vector<int64_t>{0, 2, 1}));
  };
  const Tensor linear = graph.Add("gate/linear", "Gemm", {turned("gate/columns", fields)},
                                  Options()
                                      .Set("units", static_cast<double>(parts.Size(fields, 0)))
                                      .Set("gain", 0.0)
                                      .Set("bias_value", 1.0));
  const Tensor gated = graph.Add("gate/gated", "Mul", {fields, turned("gate/rows", linear)});
  return graph.Add("gate/fields", "Concat", {fields, gated}, Options().Set("axis", 1.0));
}

}  // namespace

// FinalNet (Zhu et al. 2023, "FINAL: Factorized Interaction Layer for CTR Prediction", SIGIR):
// blocks of factorized interaction layers, each of which squares the order of the interactions; the
// logits of two blocks are averaged. The paper's loss of each block against the other's prediction
// is not part of it. Options: block1, block2, their layers ([400, 400], [400]; block2: [] leaves it
// out); field_gate, before block 1 (true); activation, batch_norm (false), dropout (0);
// linear_table names a table that is left out.
Tensor BuildFinalNet(ModelParts& parts) {
  OptionReader& options = parts.options();
  GraphBuilder& graph = parts.graph();
  ModelParts::MlpShape shape = parts.ReadMlp({{}, "relu", false, 0});
  if (!shape.hidden.empty()) options.Fail("hidden", "set block1 and block2 instead");
  const std::vector<int64_t> block1 = parts.Widths("block1", {400, 400});
  const std::vector<int64_t> block2 = parts.Widths("block2", {400});
  const bool field_gate = options.Bool("field_gate", true);
  const Tensor fields = parts.AllFieldVectors();
  shape.hidden = block1;
  const Tensor gated = field_gate ? GateFields(parts, fields) : fields;
  const Tensor x = Block(parts, "block1", graph.Add("block1/flat", "Flatten", {gated}), shape);
  if (block2.empty()) return parts.Linear("block1/logit", x, 1);
  shape.hidden = block2;
  const Tensor y = Block(parts, "block2", graph.Add("block2/flat", "Flatten", {fields}), shape);
  const Tensor both = parts.Concat(
      "model/logits", {parts.Linear("block1/logit", x, 1), parts.Linear("block2/logit", y, 1)});
  return graph.Add("model/logit", "ReduceMean", {both});
}

}  // namespace tessera::worker

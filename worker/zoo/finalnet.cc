#include "absl/strings/str_cat.h"
#include "worker/zoo/model_parts.h"

namespace tessera::worker {
namespace {

// A block of factorized interaction layers (equation 4 of the paper): with the two halves h1 and h2
// of a linear map it gives h1 + h1 * h2 or, if `concat` is set, h1 and h1 * h2 side by side, each
// half as wide.
Tensor Block(ModelParts& parts, const std::string& name, Tensor x,
             const ModelParts::MlpShape& shape, bool concat) {
  GraphBuilder& graph = parts.graph();
  for (size_t i = 0; i < shape.hidden.size(); ++i) {
    const std::string layer = absl::StrCat(name, "/", i + 1);
    const Tensor both =
        parts.Linear(layer + "/linear", x, concat ? shape.hidden[i] : 2 * shape.hidden[i]);
    const std::vector<Tensor> halves =
        graph.AddNamed(layer + "/halves", "Split", {both}, Options().Set("num_outputs", 2.0),
                       {layer + "/first", layer + "/second"});
    const Tensor product = graph.Add(layer + "/product", "Mul", halves);
    const Tensor joined = concat ? parts.Concat(layer + "/both", {halves[0], product})
                                 : graph.Add(layer + "/sum", "Add", {halves[0], product});
    x = parts.Activate(layer, joined, shape);
  }
  return x;
}

// The fields, and beside them the fields gated by a linear map over fields; the gates start as 1.
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

// The paper's self-distillation: each block also learns the prediction p of both blocks as if p
// were the label; p gets no gradient from this. With a block's logit z, its share of a sample's
// loss is
//   -p log sigmoid(z) - (1 - p) log(1 - sigmoid(z)) = softplus(z) - p z.
void AddMutualLoss(ModelParts& parts, Tensor logit, const std::vector<Tensor>& blocks,
                   double weight) {
  GraphBuilder& graph = parts.graph();
  const Tensor target = graph.Add("mutual/target", "StopGradient",
                                  {graph.Add("mutual/prediction", "Sigmoid", {logit})});
  for (size_t i = 0; i < blocks.size(); ++i) {
    const std::string name = absl::StrCat("mutual/", i + 1);
    const Tensor agreed = graph.Add(name + "/agreed", "Mul", {target, blocks[i]});
    const Tensor softplus = graph.Add(name + "/softplus", "Softplus", {blocks[i]});
    graph.AddLoss(graph.Add(name + "/loss", "Sub", {softplus, agreed}), static_cast<float>(weight));
  }
}

}  // namespace

// FinalNet (Zhu et al. 2023, "FINAL: Factorized Interaction Layer for CTR Prediction", SIGIR):
// blocks of factorized interaction layers, each of which squares the order of the interactions; the
// logits of two blocks are averaged. Options: block1, block2, their layers ([400, 400], [400];
// block2: [] leaves it out); residual, how a layer joins h1 and h1 * h2 (sum; concat); field_gate,
// before block 1 (true); mutual, the weight of each block's loss against the prediction of both (0:
// off; the authors' code has 1), for losses of logits alone; activation, batch_norm (false),
// dropout (0); linear_table names a table that is left out.
Tensor BuildFinalnet(ModelParts& parts) {
  OptionReader& options = parts.options();
  GraphBuilder& graph = parts.graph();
  ModelParts::MlpShape shape = parts.ReadMlp({{}, "relu", false, 0});
  if (!shape.hidden.empty()) options.Fail("hidden", "set block1 and block2 instead");
  const std::vector<int64_t> block1 = parts.Widths("block1", {400, 400});
  const std::vector<int64_t> block2 = parts.Widths("block2", {400});
  const bool field_gate = options.Bool("field_gate", true);
  const double mutual = options.Number("mutual", 0, 0, 1e6);
  if (mutual > 0 && block2.empty()) options.Fail("mutual", "needs block2, found none");
  if (mutual > 0 && !parts.ReadsLogits()) {
    options.Fail("mutual", "needs a loss of logits, such as binary_cross_entropy");
  }
  const bool concat = options.Choice("residual", "sum", {"concat", "sum"}) == "concat";
  for (const auto& [name, widths] : {std::pair("block1", block1), std::pair("block2", block2)}) {
    for (const int64_t width : widths) {
      if (concat && width % 2 != 0)
        options.Fail(
            name, absl::StrCat("its widths must be even where residual is concat, found ", width));
    }
  }
  const Tensor fields = parts.AllFieldVectors();
  shape.hidden = block1;
  const Tensor gated = field_gate ? GateFields(parts, fields) : fields;
  const Tensor x =
      Block(parts, "block1", graph.Add("block1/flat", "Flatten", {gated}), shape, concat);
  if (block2.empty()) return parts.Linear("block1/logit", x, 1);
  shape.hidden = block2;
  const Tensor y =
      Block(parts, "block2", graph.Add("block2/flat", "Flatten", {fields}), shape, concat);
  const std::vector<Tensor> logits = {parts.Linear("block1/logit", x, 1),
                                      parts.Linear("block2/logit", y, 1)};
  const Tensor logit =
      graph.Add("model/logit", "ReduceMean", {parts.Concat("model/logits", logits)});
  if (mutual > 0) AddMutualLoss(parts, logit, logits, mutual);
  return logit;
}

}  // namespace tessera::worker

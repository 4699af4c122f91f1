#include <cmath>

#include "absl/strings/str_cat.h"
#include "worker/zoo/model_parts.h"

namespace tessera::worker {
namespace {

struct AttentionShape {
  int64_t width = 64;  // of all heads
  int64_t heads = 2;
  bool layer_norm = false;
  bool scale = false;
  double dropout = 0;  // of the attention's weights
  std::string activation = "relu";
};

// Every field attends to every field, in each head with queries, keys and values of its own; the
// result is added to the residual (equations 5 to 8 of the paper). x [batch, fields, dim] to
// [batch, fields, width].
Tensor Attend(ModelParts& parts, const std::string& name, Tensor x, const AttentionShape& shape) {
  GraphBuilder& graph = parts.graph();
  const auto linear = [&](const std::string& what) {
    return parts.Linear(absl::StrCat(name, "/", what), x, shape.width, false);
  };
  const double dim = static_cast<double>(shape.width) / static_cast<double>(shape.heads);
  Tensor y =
      graph.Add(name + "/answers", "Attention", {linear("query"), linear("key"), linear("value")},
                Options()
                    .Set("heads", static_cast<double>(shape.heads))
                    .Set("scale", shape.scale ? 1 / std::sqrt(dim) : 1.0)
                    .Set("dropout", shape.dropout));
  const Tensor residual =
      parts.Size(x, 1) == shape.width ? x : parts.Linear(name + "/residual", x, shape.width, false);
  y = graph.Add(name + "/sum", "Add", {y, residual});
  if (shape.layer_norm) y = graph.Add(name + "/layer_norm", "LayerNormalization", {y});
  return graph.Add(absl::StrCat(name, "/", shape.activation), shape.activation, {y});
}

}  // namespace

// AutoInt (Song et al. 2019, arXiv:1810.11921): layers of multi-head self-attention over the
// fields; with a deep network beside it AutoInt+. Options: attention, the width of a layer (64),
// attention_layers (2), heads (2), layer_norm (false), scale, scores by 1 / sqrt(width of a head)
// (false), attention_dropout (0), wide, whether the linear part is added (false), linear_table;
// hidden: [] leaves the deep network out; those of the MLP.
Tensor BuildAutoint(ModelParts& parts) {
  OptionReader& options = parts.options();
  AttentionShape shape;
  shape.width = options.Int("attention", 64, 1, 1 << 16);
  shape.heads = options.Int("heads", 2, 1, 1 << 10);
  shape.layer_norm = options.Bool("layer_norm", false);
  shape.scale = options.Bool("scale", false);
  shape.dropout = options.Number("attention_dropout", 0, 0, 1, true);
  const int64_t layers = options.Int("attention_layers", 2, 1, 100);
  const bool wide = options.Bool("wide", false);
  const ModelParts::MlpShape mlp = parts.ReadMlp();
  shape.activation = mlp.activation;
  if (shape.width % shape.heads != 0) options.Fail("heads", "must divide `attention`");
  Tensor x = parts.AllFieldVectors();
  for (int64_t i = 1; i <= layers; ++i) x = Attend(parts, absl::StrCat("attention/", i), x, shape);
  const Tensor flat = parts.graph().Add("attention/flat", "Flatten", {x});
  std::vector<Tensor> logits = {parts.Linear("attention/logit", flat, 1)};
  if (!mlp.hidden.empty()) {
    logits.push_back(parts.Linear("mlp/logit", parts.Hidden("mlp", parts.Features(), mlp), 1));
  }
  if (wide) logits.push_back(parts.Linear());
  return parts.Sum("model/logit", logits);
}

}  // namespace tessera::worker

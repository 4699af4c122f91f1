#include <cmath>

#include "absl/strings/str_cat.h"
#include "worker/zoo/model_parts.h"

namespace tessera::worker {
namespace {

struct BlockShape {
  double reduction_ratio = 1;
  bool layer_norm = true;
  double dropout = 0;
  std::string activation = "relu";
};

// A mask block (equations 5 to 10 of the paper): a mask computed from the embeddings multiplies `x`
// before the block's layer of `units`.
Tensor MaskBlock(ModelParts& parts, const std::string& name, Tensor embeddings, Tensor x,
                 int64_t units, const BlockShape& shape) {
  GraphBuilder& graph = parts.graph();
  const int64_t width = parts.Size(x, 0);
  const auto wider = static_cast<int64_t>(
      std::max(1.0, std::floor(static_cast<double>(width) * shape.reduction_ratio)));
  const Tensor aggregated = graph.Add(name + "/mask/activation", shape.activation,
                                      {parts.Linear(name + "/mask/aggregate", embeddings, wider)});
  const Tensor mask = parts.Linear(name + "/mask", aggregated, width);
  const Tensor masked = graph.Add(name + "/masked", "Mul", {mask, x});
  Tensor y = parts.Linear(name + "/linear", masked, units, false);
  if (shape.layer_norm) y = graph.Add(name + "/layer_norm", "LayerNormalization", {y});
  return parts.Activate(name, y, {{}, shape.activation, false, shape.dropout});
}

}  // namespace

// MaskNet (Wang, She, Zhang 2021, arXiv:2102.07619): parallel, several mask blocks over the
// normalised embeddings and a deep network over what they give; or serial, one mask block after the
// other, as wide as `hidden` says. Options: structure (parallel), blocks (3) and block_dim (64) of
// the parallel one, reduction_ratio, the width of a mask's hidden layer to the mask's (1),
// embedding_norm (true), layer_norm (true), linear_table names a table that is left out; those of
// the MLP.
Tensor BuildMasknet(ModelParts& parts) {
  OptionReader& options = parts.options();
  GraphBuilder& graph = parts.graph();
  const std::string structure = options.Choice("structure", "parallel", {"parallel", "serial"});
  const int64_t blocks = options.Int("blocks", 3, 1, 100);
  const int64_t block_dim = options.Int("block_dim", 64, 1, 1 << 16);
  const bool embedding_norm = options.Bool("embedding_norm", true);
  BlockShape shape;
  shape.reduction_ratio = options.Number("reduction_ratio", 1, 0.01, 100);
  shape.layer_norm = options.Bool("layer_norm", true);
  const ModelParts::MlpShape mlp = parts.ReadMlp();
  if (structure == "serial" && mlp.hidden.empty()) {
    options.Fail("hidden", "structure serial needs one layer or more");
  }
  shape.dropout = mlp.dropout;
  shape.activation = mlp.activation;

  const Tensor fields = parts.AllFieldVectors();
  const Tensor embeddings = graph.Add("mask/embeddings", "Flatten", {fields});
  Tensor x = embeddings;
  if (embedding_norm) {  // of each field, with its own weight and bias
    const Tensor normal = graph.Add("mask/embedding_norm", "LayerNormalization", {fields},
                                    Options().Set("affine_axis", 1.0));
    x = graph.Add("mask/normal", "Flatten", {normal});
  }
  if (structure == "serial") {
    for (size_t i = 0; i < mlp.hidden.size(); ++i) {
      x = MaskBlock(parts, absl::StrCat("block/", i + 1), embeddings, x, mlp.hidden[i], shape);
    }
    return parts.Linear("model/logit", x, 1);
  }
  std::vector<Tensor> outputs;
  for (int64_t i = 1; i <= blocks; ++i) {
    outputs.push_back(MaskBlock(parts, absl::StrCat("block/", i), embeddings, x, block_dim, shape));
  }
  return parts.Linear("mlp/logit", parts.Hidden("mlp", parts.Concat("block/all", outputs), mlp), 1);
}

}  // namespace tessera::worker

#include "worker/zoo/model_parts.h"

namespace tessera::worker {

// DLRM (Naumov et al. 2019, arXiv:1906.00091): a bottom network turns the dense features into one
// more vector; a top network reads it and the dot products of all pairs of vectors. Options:
// bottom, its layers before the last, which is as wide as the vectors ([512, 256]); interaction,
// dot or cat, the vectors themselves (dot); self, whether a vector also meets itself (false);
// linear_table names a table that is left out; those of the MLP, which are the top network's.
Tensor BuildDlrm(ModelParts& parts) {
  GraphBuilder& graph = parts.graph();
  const std::string interaction = parts.options().Choice("interaction", "dot", {"cat", "dot"});
  const bool self = parts.options().Bool("self", false);
  const ModelParts::MlpShape top = parts.ReadMlp({{512, 256}, "relu", false, 0});
  ModelParts::MlpShape bottom = top;
  bottom.hidden = parts.Widths("bottom", {512, 256});
  Tensor vectors = parts.FieldVectors();
  std::vector<Tensor> features;
  if (const Tensor dense = graph.Find(kDenseInput); dense.index >= 0) {
    const int64_t dim = parts.Size(vectors, 1);
    bottom.hidden.push_back(dim);
    features.push_back(parts.Hidden("bottom", dense, bottom));
    if (interaction == "dot") {
      const Tensor vector = graph.Add("bottom/vector", "Reshape", {features[0]},
                                      Options().Set("shape", std::vector<int64_t>{0, 1, dim}));
      vectors =
          graph.Add("interaction/vectors", "Concat", {vector, vectors}, Options().Set("axis", 1.0));
    }
  }
  if (interaction == "dot") {
    features.push_back(
        graph.Add("interaction/dot", "DotInteraction", {vectors}, Options().Set("self", self)));
  } else {
    features.push_back(graph.Add("interaction/cat", "Flatten", {vectors}));
  }
  const Tensor x = parts.Hidden("top", parts.Concat("interaction/features", features), top);
  return parts.Linear("top/logit", x, 1);
}

}  // namespace tessera::worker

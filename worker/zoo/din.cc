#include "common/job/tasks.h"
#include "worker/zoo/model_parts.h"

namespace tessera::worker {
namespace {

// The local activation unit (Zhou et al. 2018, section 4.3): for each behaviour a network reads
// target and behaviour side by side with their difference and product and computes a weight; the
// behaviours are summed by their weights. Without a softmax, as in the paper, the weights keep
// their strength.
Tensor Attend(ModelParts& parts, const ModelParts::Behaviour& of, const ModelParts::MlpShape& shape,
              bool softmax) {
  GraphBuilder& graph = parts.graph();
  const int64_t dim = parts.Size(of.target, 0);
  const Tensor one = graph.Add("attention/target", "Reshape", {of.target},
                               Options().Set("shape", std::vector<int64_t>{0, 1, dim}));
  const Tensor target = graph.Add("attention/targets", "Expand", {one},
                                  Options().Set("shape", std::vector<int64_t>{0, of.places, dim}));
  const Tensor pairs = graph.Add(
      "attention/pairs", "Concat",
      {target, of.sequence, graph.Add("attention/difference", "Sub", {target, of.sequence}),
       graph.Add("attention/product", "Mul", {target, of.sequence})});
  Tensor weight = parts.Linear("attention/score", parts.Hidden("attention", pairs, shape), 1);
  if (softmax) {
    const Tensor masked =
        graph.Add("attention/masked", "Add", {weight, parts.Mask("attention/mask", of, 0, -1e9)});
    weight = graph.Add("attention/weight", "Softmax", {masked}, Options().Set("axis", 1.0));
  } else {
    weight = graph.Add("attention/weight", "Mul", {weight, parts.Mask("attention/mask", of, 1, 0)});
  }
  return graph.Add(
      "attention/interest", "Flatten",
      {graph.Add("attention/sum", "MatMul", {weight, of.sequence}, Options().Set("transA", true))});
}

}  // namespace

// Deep interest network (Zhou et al. 2018, arXiv:1706.06978): a deep network over all features and
// the behaviours weighted by the target. Options: sequence and target (ReadBehaviour); attention,
// the layers of its activation unit ([80, 40]); attention_activation (sigmoid); attention_softmax
// (false); those of the MLP ([200, 80], dice); classes.
Tensor BuildDin(ModelParts& parts) {
  const ModelParts::Behaviour behaviour = parts.ReadBehaviour();
  const ModelParts::MlpShape shape = parts.ReadMlp({{200, 80}, "dice", false, 0});
  ModelParts::MlpShape attention;
  attention.hidden = parts.Widths("attention", {80, 40});
  attention.activation = parts.options().Choice("attention_activation", "sigmoid",
                                                {"dice", "prelu", "relu", "sigmoid", "tanh"});
  const bool softmax = parts.options().Bool("attention_softmax", false);
  const int64_t classes = parts.options().Int("classes", 1, 1, kMostClasses);
  if (behaviour.length.index < 0) return {};
  const Tensor interest = Attend(parts, behaviour, attention, softmax);
  const Tensor features = parts.Concat("din/features", {parts.Features(), interest});
  return parts.Linear("mlp/logit", parts.Hidden("mlp", features, shape), classes);
}

}  // namespace tessera::worker

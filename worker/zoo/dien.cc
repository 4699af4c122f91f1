#include "worker/zoo/models.h"

namespace tessera::worker {

// Deep interest evolution network (Zhou et al. 2019, arXiv:1809.03672), without its auxiliary loss:
// a GRU makes interests of behaviours (section 4.2), attention says how near each is to the target
// (equation 5), and a second GRU whose update gates that attention scales, AUGRU, follows how they
// evolve (section 4.3); a deep network reads all features and where it ends. Options: sequence and
// target (ReadBehaviour); units, of the first GRU (0: as wide as a behaviour) and evolution, of
// the second (0: as many); those of the MLP ([200, 80], dice); classes.
Tensor BuildDien(ModelParts& parts) {
  GraphBuilder& graph = parts.graph();
  const ModelParts::Behaviour of = parts.ReadBehaviour();
  int64_t units = parts.options().Int("units", 0, 0, 1024);
  int64_t evolution = parts.options().Int("evolution", 0, 0, 1024);
  const ModelParts::MlpShape shape = parts.ReadMlp({{200, 80}, "dice", false, 0});
  const int64_t classes = parts.options().Int("classes", 1, 1, 1 << 16);
  if (of.length.index < 0) return {};
  if (units == 0) units = parts.Size(of.target, 0);
  if (evolution == 0) evolution = units;
  const Tensor interests = graph.Add("interest/gru", "GRU", {of.sequence, of.length},
                                     Options().Set("units", static_cast<double>(units)));
  const Tensor target = parts.Linear("attention/target", of.target, units, false);
  const Tensor score =
      graph.Add("attention/score", "MatMul",
                {interests, graph.Add("attention/column", "Reshape", {target},
                                      Options().Set("shape", std::vector<int64_t>{0, units, 1}))});
  const Tensor masked =
      graph.Add("attention/masked", "Add", {score, parts.Mask("attention/mask", of, 0, -1e9)});
  const Tensor weight =
      graph.Add("attention/weight", "Softmax", {masked}, Options().Set("axis", 1.0));
  const Tensor last =
      graph.Add("evolution/augru", "AUGRU", {interests, weight, of.length},
                Options().Set("units", static_cast<double>(evolution)).Set("sequence", false));
  const Tensor features = parts.Concat("dien/features", {parts.Features(), last});
  return parts.Linear("mlp/logit", parts.Hidden("mlp", features, shape), classes);
}

}  // namespace tessera::worker

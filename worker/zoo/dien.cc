#include "common/job/tasks.h"
#include "worker/zoo/model_parts.h"

namespace tessera::worker {
namespace {

struct Auxiliary {
  double weight = 0;  // 0: off
  ModelParts::MlpShape shape;
  ModelParts::Behaviour negative;
};

// Options: auxiliary, the loss's weight; auxiliary_hidden, layers of the scoring network; those of
// ReadNegatives.
Auxiliary ReadAuxiliary(ModelParts& parts, const ModelParts::Behaviour& of) {
  Auxiliary auxiliary;
  auxiliary.weight = parts.options().Number("auxiliary", 0, 0, 1e6);
  auxiliary.shape = {parts.Widths("auxiliary_hidden", {}), "sigmoid", false, 0};
  auxiliary.negative = parts.ReadNegatives(of, /*joined=*/auxiliary.weight > 0);
  if (auxiliary.weight > 0 && of.places == 1) {
    parts.Fail("model.options.auxiliary: needs sequences whose max_length is 2 or more, found 1");
  }
  return auxiliary;
}

// Places [from, to) of all samples.
Tensor Places(ModelParts& parts, const std::string& name, Tensor x, int64_t from, int64_t to) {
  return parts.graph().Add(
      name, "Slice", {x},
      Options().Set("start", static_cast<double>(from)).Set("end", static_cast<double>(to)));
}

// The dot products of states and the behaviours beside them, [batch, n, 1].
Tensor Near(ModelParts& parts, const std::string& name, Tensor states, Tensor behaviours) {
  return parts.graph().Add(name, "ReduceSum",
                           {parts.graph().Add(name + "/product", "Mul", {states, behaviours})},
                           Options().Set("axes", std::vector<int64_t>{2}));
}

// Section 4.2, equations 6 and 7: the state h_t tells the behaviour that followed, e_{t+1}, from
// one that did not, n_{t+1}:
//   L_aux = -1/N sum_i sum_t log sigmoid(s(h_t, e_{t+1})) + log(1 - sigmoid(s(h_t, n_{t+1})))
// over the places t + 1 that both sequences have. s is the dot product, after a linear map of h_t
// if it is not as wide as e, or with auxiliary_hidden a network over the two side by side, as in
// the authors' code. n is a column of the data, else the behaviour of another sample of the batch
// at that place.
void AddAuxiliaryLoss(ModelParts& parts, const ModelParts::Behaviour& of, Auxiliary auxiliary,
                      Tensor interests) {
  GraphBuilder& graph = parts.graph();
  const int64_t places = of.places, pairs = places - 1, dim = parts.Size(of.sequence, 1);
  ModelParts::Behaviour& negative = auxiliary.negative;
  if (negative.length.index < 0) {
    negative.sequence = graph.Add("negative/sequence", "RollBatch", {of.sequence});
    negative.length = graph.Add("negative/length", "RollBatch", {of.length});
  }
  Tensor states = Places(parts, "auxiliary/states", interests, 0, pairs);
  const Tensor next = Places(parts, "auxiliary/next", of.sequence, 1, places);
  const Tensor other = Places(parts, "auxiliary/other", negative.sequence, 1, places);
  Tensor happened, did_not;  // [batch, pairs, 1], logits
  if (auxiliary.shape.hidden.empty()) {
    if (parts.Size(states, 1) != dim) states = parts.Linear("auxiliary/map", states, dim, false);
    happened = Near(parts, "auxiliary/happened", states, next);
    did_not = Near(parts, "auxiliary/did_not", states, other);
  } else {
    const Tensor both = graph.Add("auxiliary/both", "Concat",
                                  {parts.Concat("auxiliary/with_next", {states, next}),
                                   parts.Concat("auxiliary/with_other", {states, other})},
                                  Options().Set("axis", 1.0));
    const Tensor score =
        parts.Linear("auxiliary/score", parts.Hidden("auxiliary", both, auxiliary.shape), 1);
    happened = Places(parts, "auxiliary/happened", score, 0, pairs);
    did_not = Places(parts, "auxiliary/did_not", score, pairs, 2 * pairs);
  }
  // -log sigmoid(x) = softplus(x) - x; -log(1 - sigmoid(x)) = softplus(x)
  const Tensor missed =
      graph.Add("auxiliary/missed", "Sub",
                {graph.Add("auxiliary/happened/softplus", "Softplus", {happened}), happened});
  const Tensor both = parts.Sum(
      "auxiliary/pairs", {missed, graph.Add("auxiliary/did_not/softplus", "Softplus", {did_not})});
  const Tensor mask = graph.Add(
      "auxiliary/masks", "Mul",
      {parts.Mask("auxiliary/mask", of, 1, 0), parts.Mask("auxiliary/other_mask", negative, 1, 0)});
  const Tensor counted = graph.Add("auxiliary/counted", "Mul",
                                   {both, Places(parts, "auxiliary/valid", mask, 1, places)});
  graph.AddLoss(graph.Add("auxiliary/loss", "ReduceSum", {counted},
                          Options().Set("axes", std::vector<int64_t>{1}).Set("keepdims", false)),
                static_cast<float>(auxiliary.weight));
}

}  // namespace

// Deep interest evolution network (Zhou et al. 2019, arXiv:1809.03672): a GRU makes interests of
// behaviours (section 4.2), attention says how near each is to the target (equation 5), and a
// second GRU, AUGRU, whose update gates are scaled by that attention, follows how they evolve
// (section 4.3); a deep network reads all features and AUGRU's last state. Options: sequence and
// target (ReadBehaviour); units, of the first GRU (0: as wide as a behaviour) and evolution, of the
// second (0: as many); those of the MLP ([200, 80], dice); classes; those of ReadAuxiliary.
Tensor BuildDien(ModelParts& parts) {
  GraphBuilder& graph = parts.graph();
  const ModelParts::Behaviour of = parts.ReadBehaviour();
  int64_t units = parts.options().Int("units", 0, 0, 1024);
  int64_t evolution = parts.options().Int("evolution", 0, 0, 1024);
  const ModelParts::MlpShape shape = parts.ReadMlp({{200, 80}, "dice", false, 0});
  const int64_t classes = parts.options().Int("classes", 1, 1, kMostClasses);
  const Auxiliary auxiliary = ReadAuxiliary(parts, of);
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
  const Tensor output = parts.Linear("mlp/logit", parts.Hidden("mlp", features, shape), classes);
  if (auxiliary.weight > 0) AddAuxiliaryLoss(parts, of, auxiliary, interests);
  return output;
}

}  // namespace tessera::worker

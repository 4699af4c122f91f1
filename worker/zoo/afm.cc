#include "worker/zoo/model_parts.h"

namespace tessera::worker {

// Attentional factorization machine (Xiao et al. 2017, arXiv:1708.04617): the linear part and the
// elementwise products of all pairs of field vectors, weighted by attention and summed. Options:
// linear_table; attention, the width of its hidden layer (64); attention_dropout, of the weights
// (0); dropout, of the weighted sum (0);
// activation, of the attention's layer (relu).
Tensor BuildAfm(ModelParts& parts) {
  const int64_t attention = parts.options().Int("attention", 64, 1, 1 << 16);
  const double attention_dropout = parts.options().Number("attention_dropout", 0, 0, 1, true);
  const double dropout = parts.options().Number("dropout", 0, 0, 1, true);
  GraphBuilder& graph = parts.graph();
  const Tensor pairs = graph.Add("afm/pairs", "FieldPairs", {parts.FieldVectors()});
  const Tensor hidden = graph.Add("attention/activation", parts.ReadActivation("relu"),
                                  {parts.Linear("attention/hidden", pairs, attention)});
  const Tensor score = parts.Linear("attention/score", hidden, 1, false);
  const Tensor weight = parts.Drop(
      "attention", graph.Add("attention/weight", "Softmax", {score}, Options().Set("axis", 1.0)),
      attention_dropout);
  const Tensor pooled =
      graph.Add("afm/sum", "ReduceSum", {graph.Add("afm/weighted", "Mul", {pairs, weight})},
                Options().Set("axes", std::vector<int64_t>{1}).Set("keepdims", false));
  const Tensor second = parts.Linear("afm/logit", parts.Drop("afm", pooled, dropout), 1, false);
  return graph.Add("model/logit", "Add", {parts.Linear(), second});
}

}  // namespace tessera::worker

#include "absl/strings/str_cat.h"
#include "worker/zoo/model_parts.h"

namespace tessera::worker {

// xDeepFM (Lian et al. 2018, arXiv:1803.05170): the linear part, a deep network, and a compressed
// interaction network, whose layer k makes H_k vectors of the products of the H_k-1 vectors before
// it with those of the fields (equation 6). Options: linear_table; cin, the H_k ([64]); hidden: []
// leaves the deep network out; those of the MLP.
Tensor BuildXdeepfm(ModelParts& parts) {
  const std::vector<int64_t> cin = parts.Widths("cin", {64});
  if (cin.empty()) parts.options().Fail("cin", "expected at least one layer, found none");
  const ModelParts::MlpShape mlp = parts.ReadMlp();
  GraphBuilder& graph = parts.graph();
  const Tensor fields = parts.FieldVectors();
  // Vectors stand as columns, [batch, dim, H]: each row has one element of every vector.
  const Tensor columns = graph.Add("cin/columns", "Transpose", {fields},
                                   Options().Set("perm", std::vector<int64_t>{0, 2, 1}));
  Tensor x = columns;
  std::vector<Tensor> sums;
  for (size_t i = 0; i < cin.size(); ++i) {
    const std::string name = absl::StrCat("cin/", i + 1);
    x = graph.Add(name, "Bilinear", {columns, x},
                  Options().Set("units", static_cast<double>(cin[i])));
    sums.push_back(
        graph.Add(name + "/sum", "ReduceSum", {x},
                  Options().Set("axes", std::vector<int64_t>{1}).Set("keepdims", false)));
  }
  std::vector<Tensor> logits = {parts.Linear()};
  logits.push_back(parts.Linear("cin/logit", parts.Concat("cin/features", sums), 1));
  if (!mlp.hidden.empty()) {
    logits.push_back(parts.Linear("mlp/logit", parts.Hidden("mlp", parts.Features(), mlp), 1));
  }
  return graph.Add("model/logit", "Add", logits);
}

}  // namespace tessera::worker

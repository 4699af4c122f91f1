#include <cmath>

#include "absl/strings/str_cat.h"
#include "worker/zoo/model_parts.h"

namespace tessera::worker {
namespace {

// The contexts of the gates (equations 4 and 5 of the paper): the rows of the tables gate1_table
// and gate2_table, else trained vectors.
std::vector<Tensor> ReadContexts(ModelParts& parts, bool gates) {
  std::vector<Tensor> contexts;
  for (const std::string name : {"gate1", "gate2"}) {
    const std::string option = name + "_table";
    const std::string table = parts.options().Text(option, "");
    if (!gates) {
      if (!table.empty()) parts.options().Fail(option, "needs gate_hidden, the gates' layers");
    } else if (!table.empty()) {
      contexts.push_back(parts.TakeTable(option, table));
    } else {
      contexts.push_back(
          parts.graph().Add(name + "/context", "Parameter", {},
                            Options().Set("shape", std::vector<int64_t>{10}).Set("stddev", 0.1)));
    }
  }
  return contexts;
}

// Feature selection: twice a sigmoid of a network over the context weighs the features.
Tensor SelectFeatures(ModelParts& parts, const std::string& name, Tensor context, Tensor features,
                      const ModelParts::MlpShape& gate) {
  GraphBuilder& graph = parts.graph();
  const Tensor x = parts.Hidden(name, context, gate);
  const Tensor weight = graph.Add(name + "/gate", "Sigmoid",
                                  {parts.Linear(name + "/linear", x, parts.Size(features, 0))});
  // Twice the gate, so that it starts near 1.
  const Tensor twice = graph.Add(name + "/twice", "Add", {weight, weight});
  return graph.Add(name + "/selected", "Mul", {features, twice});
}

}  // namespace

// FinalMLP (Mao et al. 2023, arXiv:2304.00902): two deep networks over the same features, each
// through its own feature selection, fused by a bilinear form in several heads. Options: mlp1,
// mlp2, their layers ([400], [400]); dropout1, dropout2 (each dropout, 0), activation, batch_norm
// (false); heads (1), which divide the last widths; gate_hidden, the layers of the feature gates
// ([]: no feature selection), whose contexts are the rows of gate1_table and gate2_table (a trained
// vector); linear_table names a table that is left out.
Tensor BuildFinalmlp(ModelParts& parts) {
  OptionReader& options = parts.options();
  GraphBuilder& graph = parts.graph();
  const ModelParts::MlpShape common = parts.ReadMlp({{}, "relu", false, 0});
  if (!common.hidden.empty()) options.Fail("hidden", "set mlp1 and mlp2 instead");
  const std::vector<int64_t> gate_hidden = parts.Widths("gate_hidden", {});
  const int64_t heads = options.Int("heads", 1, 1, 1 << 10);
  const std::vector<Tensor> contexts = ReadContexts(parts, !gate_hidden.empty());
  const Tensor features = parts.Features();
  std::vector<Tensor> streams;
  for (const std::string number : {"1", "2"}) {
    ModelParts::MlpShape mlp = common;
    mlp.hidden = parts.Widths("mlp" + number, {400});
    mlp.dropout = options.Number("dropout" + number, common.dropout, 0, 1, true);
    if (mlp.hidden.empty() || mlp.hidden.back() % heads != 0) {
      options.Fail("mlp" + number,
                   absl::StrCat("its last width must be a multiple of heads, ", heads));
    }
    Tensor x = features;
    if (!gate_hidden.empty())
      x = SelectFeatures(parts, "gate" + number, contexts[streams.size()], x,
                         {gate_hidden, common.activation, false, 0});
    streams.push_back(parts.Hidden("mlp" + number, x, mlp));
  }
  // x_h^T W_h y_h in every head: the heads' x_h^T W_h side by side, times y.
  const int64_t width = parts.Size(streams[1], 0) / heads;
  std::vector<std::string> names;
  for (int64_t h = 1; h <= heads; ++h) names.push_back(absl::StrCat("fusion/head", h));
  const std::vector<Tensor> x =
      graph.AddNamed("fusion/heads", "Split", {streams[0]},
                     Options().Set("num_outputs", static_cast<double>(heads)), names);
  // The weights of all heads form one sum, so they start as Xavier initialises that many inputs.
  const int64_t from = parts.Size(streams[0], 0) / heads;
  const double gain =
      std::sqrt(static_cast<double>(from + width) / static_cast<double>(heads * from * width + 1));
  std::vector<Tensor> products;
  for (int64_t h = 0; h < heads; ++h) {
    products.push_back(graph.Add(
        absl::StrCat("fusion/", h + 1), "Gemm", {x[h]},
        Options().Set("units", static_cast<double>(width)).Set("bias", false).Set("gain", gain)));
  }
  const Tensor bilinear =
      graph.Add("fusion/bilinear", "Mul", {parts.Concat("fusion/forms", products), streams[1]});
  return graph.Add(
      "model/logit", "Add",
      {parts.Linear("fusion/first", streams[0], 1), parts.Linear("fusion/second", streams[1], 1),
       graph.Add("fusion/sum", "ReduceSum", {bilinear})});
}

}  // namespace tessera::worker

#include "worker/zoo/model_parts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tessera::worker {

ModelParts::ModelParts(std::string model, const ModelInputs& inputs, OptionReader& options,
                       GraphBuilder& graph)
    : model_(std::move(model)), inputs_(inputs), options_(options), graph_(graph) {}

void ModelParts::Fail(const std::string& message) {
  graph_.Fail(absl::InvalidArgumentError(absl::StrCat("model \"", model_, "\": ", message)));
}

const std::string& ModelParts::LinearTable() {
  if (!linear_table_) linear_table_ = options_.Text("linear_table", "linear");
  return *linear_table_;
}

std::vector<const ModelInputs::Table*> ModelParts::EmbeddingTables() {
  std::vector<const ModelInputs::Table*> tables;
  for (const ModelInputs::Table& table : inputs_.tables) {
    if (table.name != LinearTable()) tables.push_back(&table);
  }
  return tables;
}

Tensor ModelParts::Linear() {
  const std::string& name = LinearTable();
  const ModelInputs::Table* table = inputs_.FindTable(name);
  const bool unread = std::find(inputs_.unread_tables.begin(), inputs_.unread_tables.end(), name) !=
                      inputs_.unread_tables.end();
  if (unread) {
    Fail(absl::StrCat("no column reads its linear table \"", name, "\": add ", name,
                      " to the `table` list of every sparse column, as in `table: [", name,
                      ", embedding]`"));
  } else if (table == nullptr && !inputs_.tables.empty()) {
    Fail(absl::StrCat("its linear part needs a table of dim 1 named \"", name,
                      "\", found the tables ", absl::StrJoin(inputs_.TableNames(), ", "),
                      ". Add `- {name: ", name,
                      ", dim: 1, initializer: {constant: {value: 0}}, "
                      "optimizer: {...}}` to `tables` and ",
                      name, " to the `table` list of every sparse column, as in `table: [", name,
                      ", ", inputs_.tables[0].name,
                      "]`, or name another table of dim 1 in "
                      "model.options.linear_table"));
  } else if (table != nullptr && table->dim != 1) {
    Fail(absl::StrCat("its linear part reads the table \"", name, "\", whose dim is ", table->dim,
                      ", expected 1; model.options.linear_table names another"));
  } else if (table == nullptr && inputs_.dense_width == 0) {
    Fail("the data has neither sparse nor dense columns");
  }
  std::vector<Tensor> parts;
  if (table != nullptr) {
    const Tensor sum =
        graph_.Add("linear/sum", "ReduceSum", {graph_.Find(name)},
                   Options().Set("axes", std::vector<int64_t>{1}).Set("keepdims", false));
    // A Gemm over the dense features has the bias already.
    parts.push_back(inputs_.dense_width > 0 ? sum : graph_.Add("linear/bias", "Bias", {sum}));
  }
  if (inputs_.dense_width > 0) {
    parts.push_back(graph_.Add("linear/dense", "Gemm", {graph_.Find(kDenseInput)},
                               Options().Set("units", 1.0)));
  }
  return parts.size() == 1 ? parts[0] : graph_.Add("linear/logit", "Add", parts);
}

Tensor ModelParts::FieldVectors() {
  const std::vector<const ModelInputs::Table*> tables = EmbeddingTables();
  if (tables.empty()) {
    Fail(absl::StrCat("needs a table of embeddings beside the linear table \"", LinearTable(),
                      "\": add one to `tables`, with dim above 1, and its name to the `table` list "
                      "of the sparse columns"));
    return {};
  }
  std::vector<Tensor> vectors;
  for (const ModelInputs::Table* table : tables) {
    if (table->dim != tables[0]->dim) {
      Fail(absl::StrCat("the tables whose vectors meet need one dim; \"", tables[0]->name,
                        "\" has dim ", tables[0]->dim, " and \"", table->name, "\" has dim ",
                        table->dim));
    }
    vectors.push_back(graph_.Find(table->name));
  }
  if (vectors.size() == 1) return vectors[0];
  const Tensor known = graph_.Find("fm/field_vectors");
  if (known.index >= 0) return known;
  return graph_.Add("fm/field_vectors", "Concat", vectors, Options().Set("axis", 1.0));
}

Tensor ModelParts::Features() {
  std::vector<Tensor> parts;
  for (const ModelInputs::Table* table : EmbeddingTables()) {
    parts.push_back(
        graph_.Add(absl::StrCat("deep/", table->name), "Flatten", {graph_.Find(table->name)}));
  }
  if (inputs_.dense_width > 0) parts.push_back(graph_.Find(kDenseInput));
  if (parts.empty()) {
    Fail(
        absl::StrCat("its deep part needs dense columns, or a table of embeddings beside the "
                     "linear table \"",
                     LinearTable(), "\""));
    return {};
  }
  return parts.size() == 1 ? parts[0] : graph_.Add("deep/features", "Concat", parts);
}

Tensor ModelParts::Mlp(Tensor input) {
  const std::vector<int64_t> hidden = options_.Ints("hidden", {400, 400, 400}, 1, 1 << 16);
  const std::string activation =
      options_.Choice("activation", "relu",
                      {"elu", "gelu", "leaky_relu", "relu", "sigmoid", "silu", "softplus", "tanh"});
  const bool batch_norm = options_.Bool("batch_norm", false);
  const double dropout = options_.Number("dropout", 0, 0, 1, true);
  Tensor x = input;
  for (size_t i = 0; i < hidden.size(); ++i) {
    const std::string layer = absl::StrCat("mlp/", i + 1);
    x = graph_.Add(layer + "/linear", "Gemm", {x},
                   Options().Set("units", static_cast<double>(hidden[i])));
    if (batch_norm) x = graph_.Add(layer + "/batch_norm", "BatchNormalization", {x});
    x = graph_.Add(absl::StrCat(layer, "/", activation), activation, {x});
    if (dropout > 0) {
      x = graph_.Add(layer + "/dropout", "Dropout", {x}, Options().Set("ratio", dropout));
    }
  }
  return graph_.Add("mlp/logit", "Gemm", {x}, Options().Set("units", 1.0));
}

}  // namespace tessera::worker

#include "worker/zoo/model_parts.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/tasks.h"
#include "worker/dense/initializer.h"
#include "worker/dense/layers.h"
#include "worker/dense/ops/ops.h"

namespace tessera::worker {

ModelParts::ModelParts(const v1::ModelSpec& model, const ModelInputs& inputs, OptionReader& options,
                       GraphBuilder& graph)
    : model_(model), inputs_(inputs), options_(options), graph_(graph) {}

void ModelParts::Fail(const std::string& message) {
  const bool has_path = absl::StartsWith(message, "model.");
  graph_.Fail(absl::InvalidArgumentError(
      has_path ? message : absl::StrCat("model.name: model \"", model_.name(), "\": ", message)));
}

const std::string& ModelParts::LinearTable() {
  if (!linear_table_) linear_table_ = options_.Text("linear_table", "linear");
  return *linear_table_;
}

const std::string& ModelParts::Init() {
  if (!init_) init_ = WeightInit::ReadScheme(options_);
  return *init_;
}

std::vector<const ModelInputs::Table*> ModelParts::EmbeddingTables() {
  std::vector<const ModelInputs::Table*> tables;
  for (const ModelInputs::Table& table : inputs_.tables) {
    if (table.name != LinearTable() && !taken_tables_.contains(table.name))
      tables.push_back(&table);
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
    parts.push_back(Linear("linear/dense", graph_.Find(kDenseInput), 1));
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
  return parts.size() == 1 ? parts[0] : graph_.Add("deep/features/all", "Concat", parts);
}

Tensor ModelParts::AllFieldVectors() {
  if (inputs_.dense_width == 0) return FieldVectors();
  const Tensor vectors = FieldVectors();
  if (vectors.index < 0) return vectors;
  const int64_t features = inputs_.dense_width;
  const Tensor values = graph_.Add("dense/values", "Reshape", {graph_.Find(kDenseInput)},
                                   Options().Set("shape", std::vector<int64_t>{0, features, 1}));
  const Tensor directions = graph_.Add(
      "dense/directions", "Parameter", {},
      Options().Set("shape", std::vector<int64_t>{features, Size(vectors, 1)}).Set("stddev", 0.01));
  const Tensor dense = graph_.Add("dense/vectors", "Mul", {values, directions});
  return graph_.Add("dense/field_vectors", "Concat", {vectors, dense}, Options().Set("axis", 1.0));
}

Tensor ModelParts::TakeTable(const std::string& option, const std::string& by_default) {
  const std::string name = options_.Text(option, by_default);
  if (inputs_.FindTable(name) == nullptr) {
    Fail(absl::StrCat("needs a table \"", name, "\", found ",
                      absl::StrJoin(inputs_.TableNames(), ", "),
                      ": add one to `tables` and to the "
                      "`table` list of the sparse columns, or name another in model.options.",
                      option));
    return {};
  }
  const std::string flat = absl::StrCat("deep/", name);
  if (!taken_tables_.insert(name).second) return graph_.Find(flat);
  return graph_.Add(flat, "Flatten", {graph_.Find(name)});
}

std::vector<int64_t> ModelParts::Widths(const std::string& name,
                                        const std::vector<int64_t>& by_default) {
  return options_.Ints(name, by_default, 1, 1 << 16);
}

std::string ModelParts::ReadActivation(const std::string& by_default) {
  return options_.Choice("activation", by_default, ActivationOps());
}

ModelParts::MlpShape ModelParts::ReadMlp(MlpShape shape) {
  shape.hidden = Widths("hidden", shape.hidden);
  shape.activation = ReadActivation(shape.activation);
  shape.batch_norm = options_.Bool("batch_norm", shape.batch_norm);
  shape.dropout = options_.Number("dropout", shape.dropout, 0, 1, true);
  return shape;
}

Tensor ModelParts::Linear(const std::string& name, Tensor x, int64_t units, bool bias) {
  return graph_.Add(
      name, "Gemm", {x},
      Options().Set("units", static_cast<double>(units)).Set("bias", bias).Set("init", Init()));
}

Tensor ModelParts::Drop(const std::string& layer, Tensor x, double dropout) {
  if (dropout == 0) return x;
  return graph_.Add(layer + "/dropout", "Dropout", {x}, Options().Set("ratio", dropout));
}

Tensor ModelParts::Activate(const std::string& layer, Tensor x, const MlpShape& shape) {
  if (shape.batch_norm) x = graph_.Add(layer + "/batch_norm", "BatchNormalization", {x});
  x = graph_.Add(absl::StrCat(layer, "/", shape.activation), shape.activation, {x});
  return Drop(layer, x, shape.dropout);
}

Tensor ModelParts::Hidden(const std::string& name, Tensor x, const MlpShape& shape) {
  for (size_t i = 0; i < shape.hidden.size(); ++i) {
    const std::string layer = absl::StrCat(name, "/", i + 1);
    x = Activate(layer, Linear(layer + "/linear", x, shape.hidden[i]), shape);
  }
  return x;
}

Tensor ModelParts::Mlp(Tensor input) {
  return Linear("mlp/logit", Hidden("mlp", input, ReadMlp()), 1);
}

const ModelInputs::Sequence* ModelParts::FindSequence(const std::string& option,
                                                      const std::string& column, int64_t places) {
  const ModelInputs::Sequence* found = inputs_.FindSequence(column);
  if (found == nullptr) {
    std::vector<std::string> known;
    for (const ModelInputs::Sequence& other : inputs_.sequences) known.push_back(other.column);
    Fail(absl::StrCat("model.options.", option, ": no column \"", column,
                      "\" has the pooling sequence", KnownNames(column, known)));
    return nullptr;
  }
  if (places != 0 && found->max_length != places) {
    Fail(absl::StrCat("model.options.", option,
                      ": sequences that stand side by side need one max_length; that of \"", column,
                      "\" is ", found->max_length, ", expected ", places));
    return nullptr;
  }
  return found;
}

bool ModelParts::CheckTarget(const std::string& column) {
  std::vector<std::string> pooled;
  for (const ModelInputs::Table& table : inputs_.tables) {
    if (table.name == LinearTable()) continue;
    pooled.insert(pooled.end(), table.columns.begin(), table.columns.end());
  }
  if (std::find(pooled.begin(), pooled.end(), column) != pooled.end()) return true;
  const bool is_sequence = inputs_.FindSequence(column) != nullptr;
  Fail(absl::StrCat(
      "model.options.target: ",
      is_sequence ? absl::StrCat("the pooling of \"", column,
                                 "\" is sequence, expected a column of one vector")
                  : absl::StrCat("no sparse column \"", column, "\" reads a table of embeddings"),
      KnownNames(column, pooled)));
  return false;
}

ModelParts::Behaviour ModelParts::ReadBehaviour() {
  // Read their options even after an error here.
  LinearTable();
  Init();
  const std::vector<std::string> sequences = options_.Texts("sequence");
  const std::vector<std::string> targets = options_.Texts("target");
  Behaviour out;
  if (sequences.empty() || targets.size() != sequences.size()) {
    Fail(
        absl::StrCat("model.options.sequence: needs columns whose pooling is sequence, and "
                     "model.options.target as many columns to compare them with; found ",
                     sequences.size(), " and ", targets.size()));
    return out;
  }
  std::vector<Tensor> target, sequence;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const ModelInputs::Sequence* found = FindSequence("sequence", sequences[i], out.places);
    if (found == nullptr) return out;
    out.places = found->max_length;
    if (!CheckTarget(targets[i])) return out;
    bool shared = false;
    for (const ModelInputs::Table& of : found->tables) {
      const ModelInputs::Table* table = inputs_.FindTable(of.name);
      if (shared || of.name == LinearTable() || table == nullptr) continue;
      if (std::find(table->columns.begin(), table->columns.end(), targets[i]) ==
          table->columns.end()) {
        continue;
      }
      shared = true;
      out.tables.push_back(of.name);
      target.push_back(FindLayerInput(absl::StrCat(targets[i], ".", of.name), inputs_, graph_));
      sequence.push_back(graph_.Find(SequenceInput(sequences[i], of.name)));
    }
    if (!shared) {
      Fail(absl::StrCat("model.options.target: \"", targets[i], "\" and the sequence \"",
                        sequences[i],
                        "\" share no table of embeddings; name one table in the `table` of both"));
      return out;
    }
  }
  out.target = Concat("behaviour/target", target);
  out.sequence = Concat("behaviour/sequence", sequence);
  out.length = graph_.Find(LengthInput(sequences[0]));
  return out;
}

ModelParts::Behaviour ModelParts::ReadNegatives(const Behaviour& of, bool joined) {
  const std::vector<std::string> columns = options_.Texts("negative");
  Behaviour out;
  out.places = of.places;
  if (columns.empty() || of.length.index < 0) return out;
  if (columns.size() != of.tables.size()) {
    Fail(absl::StrCat("model.options.negative: needs as many columns as model.options.sequence, ",
                      of.tables.size(), ", found ", columns.size()));
    return out;
  }
  std::vector<Tensor> sequence;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (FindSequence("negative", columns[i], of.places) == nullptr) return out;
    sequence.push_back(graph_.Find(SequenceInput(columns[i], of.tables[i])));
    if (sequence.back().index < 0) {
      Fail(absl::StrCat("model.options.negative: \"", columns[i], "\" does not read the table \"",
                        of.tables[i], "\", as the sequence in its place does"));
      return out;
    }
  }
  if (!joined) return out;
  out.sequence = Concat("negative/sequence", sequence);
  out.length = graph_.Find(LengthInput(columns[0]));
  return out;
}

Tensor ModelParts::Mask(const std::string& name, const Behaviour& of, double valid,
                        double padding) {
  return graph_.Add(name, "SequenceMask", {of.length},
                    Options()
                        .Set("size", static_cast<double>(of.places))
                        .Set("valid", valid)
                        .Set("padding", padding));
}

bool ModelParts::ReadsLogits() const {
  const auto reads = [](v1::Loss loss) { return OutputsOf(loss) == math::Outputs::kLogits; };
  if (model_.tasks().empty()) return reads(model_.loss());
  return std::all_of(model_.tasks().begin(), model_.tasks().end(),
                     [&](const v1::TaskSpec& task) { return reads(task.loss()); });
}

std::vector<ModelParts::Task> ModelParts::Tasks() {
  std::vector<Task> tasks;
  for (const v1::TaskSpec& task : model_.tasks()) {
    int64_t logits = 1;
    if (OutputsOf(task.loss()) == math::Outputs::kClasses) {
      logits = task.has_classes() ? int64_t{task.classes()}
                                  : options_.Int("classes", 0, 2, kMostClasses);
    }
    tasks.push_back({task.name(), logits});
  }
  if (tasks.empty()) {
    // Are known, though no task here may read them.
    options_.Int("classes", 0, 0, kMostClasses);
    Init();
    Fail(
        "is of several tasks: add them to model.tasks, as in `tasks: [{name: click, label: click}, "
        "{name: buy, label: buy}]`");
  }
  return tasks;
}

void ModelParts::TaskLogit(const Task& task, Tensor x) {
  if (task.logits == 0) {
    Fail(absl::StrCat("model.tasks: the loss of the task \"", task.name,
                      "\" needs the number of classes, 2 or more: its own `classes`, or "
                      "model.options.classes for all such tasks"));
    return;
  }
  Linear(task.name, x, task.logits);
}

Tensor ModelParts::Logit(const std::string& name, Tensor x) {
  return Linear(name, x, options_.Int("classes", 1, 1, kMostClasses));
}

Tensor ModelParts::Cross(const std::string& name, Tensor x0, Tensor x) {
  const Tensor weight = Linear(name + "/weight", x, 1, false);
  const Tensor product = graph_.Add(name + "/product", "Mul", {x0, weight});
  const Tensor biased = graph_.Add(name + "/bias", "Bias", {product});
  return graph_.Add(name, "Add", {biased, x});
}

Tensor ModelParts::Concat(const std::string& name, const std::vector<Tensor>& parts) {
  return parts.size() == 1 ? parts[0] : graph_.Add(name, "Concat", parts);
}

Tensor ModelParts::Sum(const std::string& name, const std::vector<Tensor>& parts) {
  return parts.size() == 1 ? parts[0] : graph_.Add(name, "Add", parts);
}

int64_t ModelParts::Size(Tensor x, size_t axis) {
  const Shape& shape = graph_.shape(x);
  return axis < shape.rank() ? shape.dim(axis) : 1;
}

}  // namespace tessera::worker

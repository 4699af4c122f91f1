#include "worker/onnx/embeddings.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/dense/model_inputs.h"

namespace tessera::worker {
namespace {

constexpr int64_t kNoId = -1;
const std::vector<int64_t> kFields = {1};  // the axis of fields, and of ids

using Columns = std::vector<const v1::ColumnSpec*>;

bool IsSequence(const v1::ColumnSpec& column) { return column.pooling() == v1::SEQUENCE; }

bool OneId(const v1::JobSpec& spec, const v1::ColumnSpec& column) {
  return !IsSequence(column) && column.separator().empty() && spec.data().format() != v1::LIBSVM;
}

// The pooled columns of a table.
Columns ColumnsOf(const v1::JobSpec& spec, const std::string& table) {
  Columns columns;
  for (const v1::ColumnSpec& column : spec.data().columns()) {
    const bool reads =
        std::find(column.table().begin(), column.table().end(), table) != column.table().end();
    if (column.role() == v1::SPARSE && reads && !IsSequence(column)) columns.push_back(&column);
  }
  return columns;
}

std::string WeightsOf(const v1::ColumnSpec& column) { return column.name() + ".weights"; }
std::string PooledOf(const v1::ColumnSpec& column, const std::string& table) {
  return absl::StrCat(column.name(), ".", table);
}

// sign(x) log(1 + |x|)
std::string SignedLog(OnnxWriter& onnx, const std::string& x) {
  const std::string name = x + "/log1p";
  const std::string above =
      onnx.Value(name, "Add", {onnx.Value(name, "Abs", {x}), onnx.Scalar(name, 1)});
  return onnx.Value(name, "Mul", {onnx.Value(name, "Sign", {x}), onnx.Value(name, "Log", {above})});
}

std::string Dense(const v1::JobSpec& spec, OnnxWriter& onnx) {
  std::vector<std::string> columns;
  for (const v1::ColumnSpec& column : spec.data().columns()) {
    if (column.role() != v1::DENSE) continue;
    columns.push_back(column.transform() == v1::LOG1P ? SignedLog(onnx, column.name())
                                                      : column.name());
  }
  return onnx.Value(kDenseInput, "Concat", columns, {{"axis", int64_t{1}}});
}

// The rows of one column's ids [batch, ids, dim], times their weights if the data has any.
std::string Weighted(const v1::JobSpec& spec, const v1::ColumnSpec& column, const std::string& rows,
                     OnnxWriter& onnx) {
  if (spec.data().format() != v1::LIBSVM) return rows;
  const std::string weights = onnx.Value(rows + "/weights", "Unsqueeze",
                                         {WeightsOf(column), onnx.Ints(rows + "/last", {2})});
  return onnx.Value(rows + "/weighted", "Mul", {rows, weights});
}

// [batch, ids]: whether there is an id.
std::string IsId(const v1::ColumnSpec& column, OnnxWriter& onnx) {
  const std::string name = column.name() + "/is_id";
  const std::string none = onnx.Ints(name + "/none", {kNoId});
  return onnx.Value(name, "Not", {onnx.Value(name, "Equal", {column.name(), none})});
}

// [batch, 1]: how many ids there are.
std::string Count(const v1::ColumnSpec& column, OnnxWriter& onnx) {
  const std::string ones = onnx.Value(column.name() + "/ones", "Cast", {IsId(column, onnx)},
                                      {{"to", int64_t{onnx::TensorProto::FLOAT}}});
  return onnx.Value(column.name() + "/count", "ReduceSum",
                    {ones, onnx.Ints(column.name() + "/axis", kFields)});
}

// Rows [batch, ids, dim] pooled to [batch, 1, dim].
std::string Pool(const v1::ColumnSpec& column, const std::string& rows, OnnxWriter& onnx) {
  const std::string name = rows + "/pooled";
  const std::string axis = onnx.Ints(name + "/axis", kFields);
  if (column.pooling() == v1::MAX) {
    // Rows of places without an id do not count; a sample without ids gets zeros.
    const std::string here =
        onnx.Value(name, "Unsqueeze", {IsId(column, onnx), onnx.Ints(name + "/last", {2})});
    const std::string lowest = onnx.Scalar(name + "/lowest", -3.402823466e38f);
    const std::string most = onnx.Value(
        name, "ReduceMax", {onnx.Value(name, "Where", {here, rows, lowest})}, {{"axes", kFields}});
    const std::string zero = onnx.Scalar(name + "/zero", 0);
    const std::string some = onnx.Value(name, "Greater", {Count(column, onnx), zero});
    return onnx.Value(name, "Where", {onnx.Value(name, "Unsqueeze", {some, axis}), most, zero});
  }
  const std::string sum = onnx.Value(name, "ReduceSum", {rows, axis});
  if (column.pooling() == v1::SUM || column.pooling() == v1::POOLING_UNSPECIFIED) return sum;
  // Divides by the number of ids or its root, at least 1.
  std::string count = onnx.Value(name, "Max", {Count(column, onnx), onnx.Scalar(name + "/one", 1)});
  if (column.pooling() == v1::SQRTN) count = onnx.Value(name, "Sqrt", {count});
  const std::string divisor = onnx.Value(name, "Unsqueeze", {count, axis});  // [batch, 1, 1]
  return onnx.Value(name, "Div", {sum, divisor});
}

// A table in the file, [rows + 2, dim]: its rows, then the row for unknown keys, then zeros for no
// id; and the places of keys in it.
class Inlined {
 public:
  Inlined(const v1::TableSpec& table, const InlineTable& rows, OnnxWriter& onnx)
      : table_(table), onnx_(onnx), keys_(rows.keys.begin(), rows.keys.end()) {
    const int64_t dim = table.dim(), count = static_cast<int64_t>(keys_.size());
    places_.resize(keys_.size());
    std::iota(places_.begin(), places_.end(), 0);
    keys_.push_back(kNoId);
    places_.push_back(count + 1);
    std::vector<float> values = rows.rows;
    values.insert(values.end(), static_cast<size_t>(dim), UnseenValue(table));
    values.insert(values.end(), static_cast<size_t>(dim), 0.0f);
    matrix_ = onnx.Floats(table.name() + "/rows", {count + 2, dim}, values);
  }

  const std::string& name() const { return table_.name(); }
  // The places of ids [batch, ids].
  std::string Places(const std::string& ids) {
    const auto unseen = static_cast<int64_t>(keys_.size()) - 1;
    return onnx_.Encode(name() + "/index", ids, keys_, places_, unseen);
  }
  // Their rows, [batch, ids, dim].
  std::string Rows(const std::string& name, const std::string& places) {
    return onnx_.Value(name, "Gather", {matrix_, places}, {{"axis", int64_t{0}}});
  }

 private:
  const v1::TableSpec& table_;
  OnnxWriter& onnx_;
  std::vector<int64_t> keys_;  // the same 64 bits
  std::vector<int64_t> places_;
  std::string matrix_;
};

// The pooled rows of a table's columns, [batch, columns, dim].
std::string Lookup(const v1::JobSpec& spec, Inlined& table, const Columns& columns,
                   OnnxWriter& onnx) {
  const std::string& name = table.name();
  std::vector<std::string> names;
  for (const v1::ColumnSpec* column : columns) names.push_back(column->name());
  const std::string ids = onnx.Value(name + "/ids", "Concat", names, {{"axis", int64_t{1}}});
  const std::string places = table.Places(ids);
  const bool one_id = std::all_of(columns.begin(), columns.end(),
                                  [&](const auto* column) { return OneId(spec, *column); });
  if (one_id) return table.Rows(name, places);

  std::vector<std::string> sizes, parts, pooled;
  for (const std::string& column : names) {
    sizes.push_back(onnx.Value(column + "/ids", "Shape", {column},
                               {{"start", int64_t{1}}, {"end", int64_t{2}}}));
    parts.push_back(onnx.Unique(absl::StrCat(column, ".", name, "/index")));
  }
  const std::string all = onnx.Value(name + "/sizes", "Concat", sizes, {{"axis", int64_t{0}}});
  onnx.Node("Split", {places, all}, parts, {{"axis", int64_t{1}}});
  for (size_t i = 0; i < columns.size(); ++i) {
    const v1::ColumnSpec& column = *columns[i];
    std::string rows = table.Rows(PooledOf(column, name) + "/rows", parts[i]);
    if (!OneId(spec, column)) rows = Pool(column, Weighted(spec, column, rows, onnx), onnx);
    pooled.push_back(rows);
  }
  return onnx.Value(name, "Concat", pooled, {{"axis", int64_t{1}}});
}

// [batch, dim] of each column as [batch, columns, dim].
std::string Stack(const v1::TableSpec& table, const Columns& columns, OnnxWriter& onnx) {
  std::vector<std::string> names;
  for (const v1::ColumnSpec* column : columns) names.push_back(PooledOf(*column, table.name()));
  const std::string flat =
      onnx.Value(table.name() + "/pooled", "Concat", names, {{"axis", int64_t{1}}});
  const std::vector<int64_t> shape = {0, static_cast<int64_t>(names.size()), table.dim()};
  return onnx.Value(table.name(), "Reshape", {flat, onnx.Ints(table.name() + "/shape", shape)});
}

const v1::ColumnSpec& ColumnOf(const v1::JobSpec& spec, const std::string& name) {
  const auto& columns = spec.data().columns();
  return *std::find_if(columns.begin(), columns.end(),
                       [&](const v1::ColumnSpec& column) { return column.name() == name; });
}

const v1::ColumnSpec& SparseAt(const v1::JobSpec& spec, uint32_t index) {
  const auto& columns = spec.data().columns();
  return *std::find_if(columns.begin(), columns.end(), [&](const v1::ColumnSpec& column) {
    return column.role() == v1::SPARSE && index-- == 0;
  });
}

bool Reads(const Model::Input& input, const v1::ColumnSpec& column) {
  const auto& names = column.table();
  return (IsSequence(column) ? input.sequence == column.name() : input.sequence.empty()) &&
         std::find(names.begin(), names.end(), input.table) != names.end();
}

// Inputs that the outputs need; others are for losses of training.
std::vector<Model::Input> InputsOfOutputs(const Model& model) {
  std::vector<Model::Input> inputs(model.inputs().begin(), model.inputs().end());
  std::erase_if(inputs, [&](const Model::Input& input) {
    return !model.graph().IsUsedByOutputs(input.tensor);
  });
  return inputs;
}

std::vector<Model::Length> LengthsOfOutputs(const Model& model) {
  std::vector<Model::Length> lengths(model.lengths().begin(), model.lengths().end());
  std::erase_if(lengths, [&](const Model::Length& length) {
    return !model.graph().IsUsedByOutputs(length.tensor);
  });
  return lengths;
}

// Whether the column's ids are an input of the file.
bool ById(const Model& model, const v1::ColumnSpec& column,
          const std::map<std::string, InlineTable>& tables) {
  const std::vector<Model::Input> inputs = InputsOfOutputs(model);
  return std::any_of(inputs.begin(), inputs.end(), [&](const auto& input) {
    return Reads(input, column) && tables.count(input.table) > 0;
  });
}

void DeclareSparse(const v1::JobSpec& spec, const Model& model, const v1::ColumnSpec& column,
                   const std::map<std::string, InlineTable>& tables, OnnxWriter& onnx) {
  const int64_t places = column.max_length();
  for (const Model::Input& input : InputsOfOutputs(model)) {
    if (!Reads(input, column) || tables.count(input.table) > 0) continue;
    std::vector<int64_t> dims = {input.dim};
    if (IsSequence(column)) dims.insert(dims.begin(), places);
    onnx.Input(PooledOf(column, input.table), onnx::TensorProto::FLOAT, dims);
  }
  if (ById(model, column, tables)) {
    const int64_t ids = IsSequence(column) ? places : -1;
    onnx.Input(column.name(), onnx::TensorProto::INT64, {OneId(spec, column) ? 1 : ids});
    if (spec.data().format() == v1::LIBSVM) {
      onnx.Input(WeightsOf(column), onnx::TensorProto::FLOAT, {ids});
    }
    return;
  }
  for (const Model::Length& length : LengthsOfOutputs(model)) {
    if (SparseAt(spec, length.sparse_index).name() != column.name()) continue;
    onnx.Input(LengthInput(column.name()), onnx::TensorProto::FLOAT, {1});
  }
}

}  // namespace

absl::StatusOr<std::map<int32_t, std::string>> WriteInputs(
    const v1::JobSpec& spec, const Model& model, const std::map<std::string, InlineTable>& tables,
    OnnxWriter& onnx) {
  const bool dense =
      model.dense_tensor() >= 0 && model.graph().IsUsedByOutputs(model.dense_tensor());
  for (const v1::ColumnSpec& column : spec.data().columns()) {
    if (column.role() == v1::DENSE && dense) {
      const bool libsvm = spec.data().format() == v1::LIBSVM;
      const uint64_t width = libsvm ? column.index_end() - column.index_begin() : 1;
      onnx.Input(column.name(), onnx::TensorProto::FLOAT, {static_cast<int64_t>(width)});
    }
    if (column.role() != v1::SPARSE) continue;
    DeclareSparse(spec, model, column, tables, onnx);
  }
  std::map<int32_t, std::string> names;
  if (dense) names[model.dense_tensor()] = Dense(spec, onnx);
  std::map<std::string, Inlined> inlined;
  for (const Model::Input& input : InputsOfOutputs(model)) {
    const v1::TableSpec& table = spec.tables(static_cast<int>(input.table_index));
    const auto rows = tables.find(input.table);
    if (rows != tables.end()) inlined.try_emplace(input.table, table, rows->second, onnx);
    const auto found = inlined.find(input.table);
    if (input.sequence.empty()) {
      const Columns columns = ColumnsOf(spec, input.table);
      names[input.tensor] = found == inlined.end() ? Stack(table, columns, onnx)
                                                   : Lookup(spec, found->second, columns, onnx);
      continue;
    }
    const v1::ColumnSpec& column = ColumnOf(spec, input.sequence);
    std::string name = PooledOf(column, input.table);
    if (found != inlined.end()) {
      name = Weighted(spec, column, found->second.Rows(name, found->second.Places(column.name())),
                      onnx);
    }
    names[input.tensor] = name;
  }
  for (const Model::Length& length : LengthsOfOutputs(model)) {
    const v1::ColumnSpec& column = SparseAt(spec, length.sparse_index);
    names[length.tensor] =
        ById(model, column, tables) ? Count(column, onnx) : LengthInput(column.name());
  }
  return names;
}

}  // namespace tessera::worker

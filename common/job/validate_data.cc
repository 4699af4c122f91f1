#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "common/job/defaults.h"
#include "common/job/tasks.h"
#include "common/job/validate_parts.h"
#include "common/status_macros.h"
#include "common/suggest.h"

namespace tessera::validate {
namespace {

std::string LowerName(const std::string& name) { return absl::AsciiStrToLower(name); }

// Of a LABEL column.
LabelKind KindOf(const v1::JobSpec& spec, const v1::ColumnSpec& column) {
  LabelKind kind = LabelKind::kBinary;
  uint32_t label = 0;
  for (const v1::ColumnSpec& other : spec.data().columns()) {
    if (&other == &column) kind = LabelKindsOf(spec)[label];
    label += other.role() == v1::LABEL;
  }
  return kind;
}

absl::Status DefaultValue(const v1::JobSpec& spec, const v1::ColumnSpec& column,
                          const std::string& path) {
  const std::string& value = column.default_value();
  if (column.role() == v1::SPARSE) {
    int64_t id = 0;
    const bool has_sign = !value.empty() && value[0] == '+';  // data files have no '+'
    if (TypeOf(column) == v1::STRING || (absl::SimpleAtoi(value, &id) && id >= 0 && !has_sign)) {
      return absl::OkStatus();
    }
    return Wrong(path, "found '", value, "'; expected an id, 0 .. 2^63-1 (or type: string)");
  }
  double number = 0;
  const bool parsed = absl::SimpleAtod(value, &number) && std::isfinite(static_cast<float>(number));
  if (column.role() == v1::DENSE) {
    if (parsed) return absl::OkStatus();
    return Wrong(path, "found '", value, "'; expected a finite number, as the column is dense");
  }
  if (column.role() == v1::WEIGHT) {
    if (parsed && number >= 0) return absl::OkStatus();
    return Wrong(path, "found '", value, "'; expected 0 or more, as the column is the weight");
  }
  const auto expect = [&](bool good, const char* expected) -> absl::Status {
    if (parsed && good) return absl::OkStatus();
    return Wrong(path, "found '", value, "'; expected ", expected, ", as the column is the label");
  };
  switch (KindOf(spec, column)) {
    case LabelKind::kReal:
      return expect(true, "a finite number");
    case LabelKind::kClass:
      return expect(number >= 0 && number == std::floor(number),
                    "the number of a class, 0, 1, ...");
    case LabelKind::kGrade:
      return expect(number >= 0, "0 or more");
    case LabelKind::kBinary:
      break;
  }
  return expect(number == 0 || number == 1, "0 or 1");
}

absl::Status MissingValue(const v1::JobSpec& spec, const v1::ColumnSpec& column,
                          const std::string& path) {
  const std::string& value = column.missing_value();
  if (column.has_default_value()) {
    return Wrong(path,
                 "an empty label has the default_value, or is missing; leave one of both out");
  }
  const bool libsvm = spec.data().format() == v1::LIBSVM;
  if (libsvm && (value.empty() || value.find_first_of(" \t") != std::string::npos)) {
    return Wrong(path, "found '", value,
                 "'; libsvm files have no empty labels: expected the word that stands in place of "
                 "one, such as 'nan'");
  }
  double number = 0;
  if (KindOf(spec, column) == LabelKind::kBinary && absl::SimpleAtod(value, &number) &&
      (number == 0 || number == 1)) {
    return Wrong(path, "found '", value,
                 "', which is one of the labels 0 and 1; expected what stands for none, such as "
                 "'nan' (empty fields are none anyway)");
  }
  return absl::OkStatus();
}

absl::Status PaddingId(v1::DataFormat format, const v1::ColumnSpec& column,
                       const std::string& path) {
  const std::string& value = column.padding_id();
  int64_t id = 0;
  if (TypeOf(column) != v1::STRING && !absl::SimpleAtoi(value, &id)) {
    return Wrong(path, "found '", value, "'; expected a number, as the ids of '", column.name(),
                 "' are, such as '0' or '-1' (or type: string)");
  }
  const auto index = static_cast<uint64_t>(id);
  if (format == v1::LIBSVM && !column.qid() &&
      (id < 0 || index < column.index_begin() || index >= column.index_end())) {
    return Wrong(path, "found '", value, "'; expected an index of the column, ",
                 column.index_begin(), " .. ", column.index_end() - 1);
  }
  return absl::OkStatus();
}

// Checks `qid`, of a column that has it.
absl::Status Qid(v1::DataFormat format, const v1::ColumnSpec& column, const std::string& path) {
  if (format != v1::LIBSVM) {
    return Wrong(path,
                 "belongs to the format libsvm, whose records may have a qid:N; leave it out");
  }
  if (column.role() != v1::SPARSE && column.role() != v1::IGNORED) {
    return Wrong(path, "belongs to sparse columns, and the role of '", column.name(), "' is ",
                 LowerName(v1::ColumnRole_Name(column.role())), "; leave it out");
  }
  if (column.index_begin() != 0 || column.index_end() != 0) {
    return Wrong(path, "the ids of '", column.name(),
                 "' are those of qid:N; leave out index_begin and index_end, or qid");
  }
  return absl::OkStatus();
}

std::vector<std::string> TableNames(const v1::JobSpec& spec) {
  std::vector<std::string> names;
  for (const v1::TableSpec& table : spec.tables()) names.push_back(table.name());
  return names;
}

bool IsGroup(const v1::JobSpec& spec, const v1::ColumnSpec& column) {
  return column.name() == spec.model().group_by() || column.name() == spec.evaluation().group_by();
}

// `tables`: the tables' names.
absl::Status Lookups(const v1::JobSpec& spec, const v1::ColumnSpec& column,
                     const std::set<std::string>& tables, const std::string& path) {
  if (column.table().empty() && !IsGroup(spec, column)) {
    return Wrong(path + ".table",
                 "missing; a sparse column names the table (or tables) that its ids are looked up "
                 "in, unless it is that of model.group_by or evaluation.group_by; ",
                 SuggestName("", TableNames(spec)));
  }
  std::set<std::string> seen;
  for (int i = 0; i < column.table_size(); ++i) {
    const std::string at =
        column.table_size() == 1 ? path + ".table" : absl::StrCat(path, ".table[", i, "]");
    if (!tables.contains(column.table(i))) {
      return Wrong(at, "there is no table '", column.table(i), "'; ",
                   SuggestName(column.table(i), TableNames(spec)));
    }
    if (!seen.insert(column.table(i)).second) {
      return Wrong(at, "'", column.table(i), "' is named twice");
    }
  }
  return absl::OkStatus();
}

absl::Status Separator(v1::DataFormat format, const std::string& separator,
                       const std::string& path) {
  const bool good = separator.size() == 1 && separator != "\n" && separator != "\r" &&
                    separator != "\"" && !(format == v1::TSV && separator == "\t");
  if (good && format != v1::LIBSVM) return absl::OkStatus();
  return Wrong(path, "found '", separator,
               "'; expected one character that ends no field of the format, such as '|'");
}

// Checks fields that only some roles use.
absl::Status Belongings(v1::DataFormat format, const v1::ColumnSpec& column,
                        const std::string& path) {
  const auto only = [&](bool set, bool allowed, absl::string_view field,
                        absl::string_view whose) -> absl::Status {
    if (!set || allowed) return absl::OkStatus();
    return Wrong(absl::StrCat(path, ".", field), "belongs to ", whose,
                 " columns, and the role of '", column.name(), "' is ",
                 LowerName(v1::ColumnRole_Name(column.role())), "; leave it out");
  };
  const bool sparse = column.role() == v1::SPARSE;
  TESSERA_RETURN_IF_ERROR(only(!column.table().empty(), sparse, "table", "sparse"));
  TESSERA_RETURN_IF_ERROR(only(!column.separator().empty(), sparse, "separator", "sparse"));
  TESSERA_RETURN_IF_ERROR(
      only(column.pooling() != v1::POOLING_UNSPECIFIED, sparse, "pooling", "sparse"));
  TESSERA_RETURN_IF_ERROR(only(column.transform() != v1::TRANSFORM_UNSPECIFIED,
                               column.role() == v1::DENSE, "transform", "dense"));
  TESSERA_RETURN_IF_ERROR(only(column.has_default_value(), column.role() != v1::IGNORED,
                               "default_value", "label, weight, dense and sparse"));
  TESSERA_RETURN_IF_ERROR(
      only(column.has_missing_value(), column.role() == v1::LABEL, "missing_value", "label"));
  TESSERA_RETURN_IF_ERROR(only(column.has_padding_id(), sparse, "padding_id", "sparse"));
  const bool sequence = column.pooling() == v1::SEQUENCE;
  constexpr uint32_t kMostRows = 1024;
  if (sequence && (column.max_length() < 1 || column.max_length() > kMostRows)) {
    return Wrong(path + ".max_length", "found ", column.max_length(), "; expected 1 .. ", kMostRows,
                 ", the rows of the sequence: the last so many ids of a field count");
  }
  if (!sequence && column.max_length() != 0) {
    return Wrong(path + ".max_length",
                 "belongs to columns whose pooling is sequence; leave it out");
  }
  if (column.max_length() > 1 && column.separator().empty() && format != v1::LIBSVM) {
    return Wrong(path + ".separator", "missing, and without it a field of '", column.name(),
                 "' holds one id, not a sequence; expected the character between the ids, such as "
                 "'|'");
  }
  if (!column.key_space().empty() && !(sparse && column.type() == v1::STRING)) {
    return Wrong(path + ".key_space",
                 "belongs to sparse columns of type string; leave it out (equal int64 ids in one "
                 "table share their row anyway)");
  }
  return absl::OkStatus();
}

absl::Status Type(const v1::ColumnSpec& column, const std::string& path) {
  if (column.type() == v1::VALUE_TYPE_UNSPECIFIED || column.role() == v1::IGNORED) {
    return absl::OkStatus();
  }
  const bool sparse = column.role() == v1::SPARSE;
  if (column.type() == v1::INT64 || sparse == (column.type() == v1::STRING)) {
    return absl::OkStatus();
  }
  return Wrong(path + ".type", "found ", LowerName(v1::ValueType_Name(column.type())), " for a ",
               LowerName(v1::ColumnRole_Name(column.role())), " column; expected ",
               sparse ? "int64 or string" : "float (or leave it out)");
}

absl::Status Column(const v1::JobSpec& spec, const std::set<std::string>& tables, int i) {
  const v1::ColumnSpec& column = spec.data().columns(i);
  const std::string path = absl::StrCat("data.columns[", i, "]");
  if (column.name().empty()) return Wrong(path + ".name", "missing; every column has a name");
  if (column.name() == "dense") {
    return Wrong(path + ".name",
                 "'dense' stands for all dense columns in the inputs of layers; choose another "
                 "name");
  }
  if (column.role() == v1::COLUMN_ROLE_UNSPECIFIED) {
    return Wrong(path + ".role", "missing for column '", column.name(),
                 "'; expected label, dense, sparse, weight or ignored");
  }
  TESSERA_RETURN_IF_ERROR(Belongings(spec.data().format(), column, path));
  TESSERA_RETURN_IF_ERROR(Type(column, path));
  if (column.role() == v1::SPARSE) TESSERA_RETURN_IF_ERROR(Lookups(spec, column, tables, path));
  if (!column.separator().empty()) {
    TESSERA_RETURN_IF_ERROR(
        Separator(spec.data().format(), column.separator(), path + ".separator"));
  }
  if (column.has_default_value()) {
    TESSERA_RETURN_IF_ERROR(DefaultValue(spec, column, path + ".default_value"));
  }
  if (column.qid()) TESSERA_RETURN_IF_ERROR(Qid(spec.data().format(), column, path + ".qid"));
  const bool has_range = column.index_begin() != 0 || column.index_end() != 0;
  const bool needs_range = spec.data().format() == v1::LIBSVM &&
                           (column.role() == v1::DENSE || column.role() == v1::SPARSE) &&
                           !column.qid();
  if (has_range && spec.data().format() != v1::LIBSVM) {
    return Wrong(path + ".index_begin", "index ranges belong to the format libsvm; leave them out");
  }
  if (needs_range && column.index_begin() >= column.index_end()) {
    return Wrong(path + ".index_end", "found the index range [", column.index_begin(), ", ",
                 column.index_end(), ") for column '", column.name(),
                 "'; the format libsvm needs index_begin < index_end");
  }
  if (column.has_missing_value()) {
    TESSERA_RETURN_IF_ERROR(MissingValue(spec, column, path + ".missing_value"));
  }
  if (column.has_padding_id()) {
    TESSERA_RETURN_IF_ERROR(PaddingId(spec.data().format(), column, path + ".padding_id"));
  }
  return absl::OkStatus();
}

// Checks the columns of labels and weights.
absl::Status Targets(const v1::JobSpec& spec) {
  const v1::DataSpec& data = spec.data();
  int label = -1, weight = -1;
  for (int i = 0; i < data.columns_size(); ++i) {
    const std::string path = absl::StrCat("data.columns[", i, "].role");
    if (data.columns(i).role() == v1::WEIGHT) {
      if (weight >= 0) {
        return Wrong(path, "data.columns[", weight, "] is the weight already; expected one");
      }
      if (data.format() == v1::LIBSVM) {
        return Wrong(path, "found weight; libsvm files have no place for a sample's weight");
      }
      weight = i;
    }
    if (data.columns(i).role() != v1::LABEL) continue;
    if (label >= 0 && data.format() == v1::LIBSVM) {
      return Wrong(path, "data.columns[", label, "] is the label already; libsvm has one");
    }
    if (label >= 0 && spec.model().tasks().empty()) {
      return Wrong(path, "data.columns[", label,
                   "] is the label already; expected one (several are for model.tasks)");
    }
    label = i;
  }
  if (label < 0 && data.format() != v1::LIBSVM) {
    return Wrong("data.columns", "none has the role label; expected ",
                 spec.model().tasks().empty() ? "exactly one" : "those that model.tasks name");
  }
  return absl::OkStatus();
}

absl::Status Libsvm(const v1::DataSpec& data) {
  if (data.header()) return Wrong("data.header", "libsvm files have none; leave it out");
  constexpr uint64_t kMaxDenseWidth = 1 << 16;
  uint64_t dense_width = 0;
  std::map<uint64_t, int> by_begin;
  int qid = -1;
  for (int i = 0; i < data.columns_size(); ++i) {
    const v1::ColumnSpec& column = data.columns(i);
    const std::string path = absl::StrCat("data.columns[", i, "]");
    if (column.index_end() > 0 && column.index_begin() >= column.index_end()) {
      return Wrong(path + ".index_end", "found ", column.index_end(), "; expected more than ",
                   column.index_begin(), ", where the range begins");
    }
    if (column.qid() && qid >= 0) {
      return Wrong(path + ".qid", "data.columns[", qid, "] has it already; a record has one qid:N");
    }
    if (column.qid()) qid = i;
    if (column.role() == v1::SPARSE && TypeOf(column) == v1::STRING) {
      return Wrong(path + ".type", "found string; ids of libsvm files are numbers: use int64");
    }
    if (column.role() == v1::SPARSE && column.has_default_value()) {
      return Wrong(path + ".default_value", "libsvm files have no empty ids; leave it out");
    }
    if (column.index_end() > uint64_t{1} << 63) {
      return Wrong(path + ".index_end", "found ", column.index_end(), "; expected at most 2^63");
    }
    if (column.role() == v1::DENSE && column.index_end() - column.index_begin() > kMaxDenseWidth) {
      return Wrong(path + ".index_end", "a dense column of ",
                   column.index_end() - column.index_begin(), " values; expected at most ",
                   kMaxDenseWidth, " (make it sparse)");
    }
    if (column.role() == v1::DENSE) dense_width += column.index_end() - column.index_begin();
    if (dense_width > kMaxDenseWidth) {
      return Wrong(path + ".index_end", "with this one dense columns have ", dense_width,
                   " values; expected at most ", kMaxDenseWidth, " (make it sparse)");
    }
    if (column.index_end() == 0) continue;
    if (!by_begin.emplace(column.index_begin(), i).second) {
      return Wrong(path + ".index_begin", "another column begins at ", column.index_begin(),
                   " too; ranges may not overlap");
    }
  }
  uint64_t end = 0;
  for (const auto& [begin, i] : by_begin) {
    if (begin < end) {
      return Wrong(absl::StrCat("data.columns[", i, "].index_begin"), "found ", begin,
                   ", inside an earlier column's range that ends at ", end,
                   "; ranges may not overlap");
    }
    end = data.columns(i).index_end();
  }
  return absl::OkStatus();
}

absl::Status Split(const v1::SplitSpec& split, const std::string& path) {
  std::set<std::string> seen;
  for (int i = 0; i < split.files_size(); ++i) {
    const std::string at = absl::StrCat(path, ".files[", i, "]");
    TESSERA_RETURN_IF_ERROR(Path(split.files(i), at));
    if (absl::StrContains(split.files(i), "**")) {
      return Wrong(at, "found '", split.files(i),
                   "'; '**' would match one level of folders only, as '*' does: write '*', such as "
                   "*/*.csv, and a pattern for each depth");
    }
    if (!seen.insert(split.files(i)).second) {
      return Wrong(at, "'", split.files(i), "' is named twice; every record counts once");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Data(const v1::JobSpec& spec) {
  const v1::DataSpec& data = spec.data();
  if (data.format() == v1::DATA_FORMAT_UNSPECIFIED) {
    return Wrong("data.format", "missing; expected csv, tsv or libsvm");
  }
  if (data.columns().empty()) return Wrong("data.columns", "empty; expected a list of columns");
  const std::vector<std::string> table_names = TableNames(spec);
  const std::set<std::string> tables(table_names.begin(), table_names.end());
  std::map<std::string, int> names;
  int features = 0;
  for (int i = 0; i < data.columns_size(); ++i) {
    TESSERA_RETURN_IF_ERROR(Column(spec, tables, i));
    const v1::ColumnSpec& column = data.columns(i);
    const std::string path = absl::StrCat("data.columns[", i, "]");
    const auto [other, first] = names.emplace(column.name(), i);
    if (!first) {
      return Wrong(path + ".name", "'", column.name(), "' is the name of data.columns[",
                   other->second, "] too; names must differ");
    }
    features += column.role() == v1::DENSE || !column.table().empty();
  }
  TESSERA_RETURN_IF_ERROR(Targets(spec));
  if (features == 0) {
    return Wrong("data.columns",
                 "none has the role dense, or sparse and a table; a model needs an input");
  }
  if (data.format() == v1::LIBSVM) TESSERA_RETURN_IF_ERROR(Libsvm(data));
  if (data.train().files().empty()) {
    return Wrong("data.train.files", "empty; expected files or globs below the data folder");
  }
  TESSERA_RETURN_IF_ERROR(Split(data.train(), "data.train"));
  TESSERA_RETURN_IF_ERROR(Split(data.validation(), "data.validation"));
  TESSERA_RETURN_IF_ERROR(Split(data.test(), "data.test"));
  constexpr uint64_t kMaxWindow = uint64_t{1} << 30;
  if (data.shuffle_window_records() > kMaxWindow) {
    return Wrong("data.shuffle_window_records", "found ", data.shuffle_window_records(),
                 "; expected at most ", kMaxWindow, ": a worker holds two windows in memory");
  }
  if (ShardRecords(data) > ShuffleWindowRecords(data)) {
    return Wrong("data.shard_records", "found ", ShardRecords(data),
                 "; expected at most the shuffle window of ", ShuffleWindowRecords(data));
  }
  constexpr uint64_t kMaxShards = uint64_t{1} << 16;
  if (ShuffleWindowRecords(data) / ShardRecords(data) > kMaxShards) {
    return Wrong("data.shard_records", "found ", ShardRecords(data), " for a shuffle window of ",
                 ShuffleWindowRecords(data), ": ", ShuffleWindowRecords(data) / ShardRecords(data),
                 " shards in every unit of work; expected at most ", kMaxShards, "; use shards of ",
                 (ShuffleWindowRecords(data) + kMaxShards - 1) / kMaxShards, " records or more");
  }
  return absl::OkStatus();
}

}  // namespace tessera::validate

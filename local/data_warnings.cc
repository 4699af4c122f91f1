#include "local/data_warnings.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/defaults.h"
#include "common/math/loss/missing_label.h"

namespace tessera::local {
namespace {

// The columns that an option of the model names; empty: none.
std::vector<std::string> ColumnsOf(const v1::ModelSpec& model, const std::string& option) {
  const auto found = model.options().fields().find(option);
  if (found == model.options().fields().end()) return {};
  if (!found->second.has_list_value()) return {found->second.string_value()};
  std::vector<std::string> columns;
  for (const auto& value : found->second.list_value().values()) {
    columns.push_back(value.string_value());
  }
  return columns;
}

const v1::ColumnSpec* FindSparse(const v1::JobSpec& spec, const std::string& name) {
  for (const v1::ColumnSpec& column : spec.data().columns()) {
    if (column.name() == name && column.role() == v1::SPARSE) return &column;
  }
  return nullptr;
}

// "strings of the key space item", "numbers", of libsvm "numbers in [1, 101)"
std::string KindOfKeys(const v1::ColumnSpec& column) {
  if (TypeOf(column) == v1::STRING) {
    return absl::StrCat("strings of the key space ", KeySpaceOf(column));
  }
  if (column.index_end() == 0) return "numbers";
  return absl::StrCat("numbers in [", column.index_begin(), ", ", column.index_end(), ")");
}

// What keeps the keys of `column`, which the option names, from being those of `other`; empty: they
// may be. `relation` says what `other` is.
std::string WarningOfKeys(const std::string& option, const v1::ColumnSpec& column,
                          const std::string& relation, const v1::ColumnSpec& other) {
  // A qid may be any number.
  if (KindOfKeys(column) == KindOfKeys(other) || column.qid() || other.qid()) return "";
  const bool strings = TypeOf(column) == v1::STRING && TypeOf(other) == v1::STRING;
  return absl::StrCat("model.options.", option, ": the ids of ", column.name(), " are ",
                      KindOfKeys(column), ", those of its ", relation, " ", other.name(), " ",
                      KindOfKeys(other), ", and equal ids have different rows; ",
                      strings
                          ? absl::StrCat("give ", column.name(), " key_space: ", KeySpaceOf(other))
                      : column.index_end() > 0
                          ? "no two columns of libsvm files have an id in common: use csv or tsv"
                          : "give both columns one type");
}

}  // namespace

std::vector<std::string> WarningsOfKeys(const v1::JobSpec& spec) {
  const std::vector<std::string> sequences = ColumnsOf(spec.model(), "sequence");
  std::vector<std::string> warnings;
  const auto compare = [&](const std::string& option, const std::vector<std::string>& columns,
                           const std::string& relation, const std::vector<std::string>& others) {
    for (size_t i = 0; i < std::min(columns.size(), others.size()); ++i) {
      const v1::ColumnSpec* const column = FindSparse(spec, columns[i]);
      const v1::ColumnSpec* const other = FindSparse(spec, others[i]);
      if (column == nullptr || other == nullptr) continue;
      std::string warning = WarningOfKeys(option, *column, relation, *other);
      if (!warning.empty()) warnings.push_back(std::move(warning));
    }
  };
  compare("sequence", sequences, "target", ColumnsOf(spec.model(), "target"));
  compare("negative", ColumnsOf(spec.model(), "negative"), "sequence", sequences);
  return warnings;
}

ColumnsSeen::ColumnsSeen(const v1::JobSpec& spec) {
  std::vector<std::string> sparse;
  size_t dense_width = 0, label_columns = 0;
  for (const v1::ColumnSpec& column : spec.data().columns()) {
    if (column.role() == v1::LABEL) {
      if (column.has_missing_value()) labels_.push_back({&column, label_columns});
      ++label_columns;
    }
    if (column.role() == v1::DENSE) {
      const bool libsvm = spec.data().format() == v1::LIBSVM;
      const size_t width = libsvm ? column.index_end() - column.index_begin() : 1;
      numbers_.push_back({&column, dense_width, dense_width + width});
      dense_width += width;
    }
    if (column.role() != v1::SPARSE) continue;
    // A sequence of one row keeps one id of a field.
    const bool one = column.pooling() == v1::SEQUENCE && column.max_length() == 1;
    if (!column.separator().empty() && !one) lists_.push_back({&column, sparse.size()});
    sparse.push_back(column.name());
  }
  for (const char* option : {"sequence", "negative"}) {
    const std::vector<std::string> columns = ColumnsOf(spec.model(), option);
    for (size_t i = 1; i < columns.size(); ++i) {
      const auto first = std::find(sparse.begin(), sparse.end(), columns[0]);
      const auto other = std::find(sparse.begin(), sparse.end(), columns[i]);
      if (first == sparse.end() || other == sparse.end()) continue;
      pairs_.push_back({columns[0], columns[i], static_cast<size_t>(first - sparse.begin()),
                        static_cast<size_t>(other - sparse.begin())});
    }
  }
}

void ColumnsSeen::Add(const worker::Batch& batch) {
  records_ += batch.size;
  const auto ids = [&batch](size_t sparse_index, uint32_t row) {
    const std::vector<uint32_t>& offsets = batch.sparse[sparse_index].offsets;
    return offsets[row + 1] - offsets[row];
  };
  for (uint32_t row = 0; row < batch.size; ++row) {
    for (Lists& lists : lists_) {
      lists.filled += ids(lists.sparse_index, row) > 0;
      lists.several += ids(lists.sparse_index, row) > 1;
    }
    for (Pair& pair : pairs_) {
      pair.unequal += ids(pair.first_index, row) != ids(pair.other_index, row);
    }
    for (Labels& labels : labels_) {
      const float label = batch.labels[row * batch.label_width() + labels.index];
      labels.any |= !math::IsMissing(label);
    }
    const float* const dense = batch.dense.data() + row * batch.dense_width();
    for (Numbers& numbers : numbers_) {
      for (size_t i = numbers.begin; i < numbers.end; ++i) {
        numbers.largest = std::max(numbers.largest, std::fabs(dense[i]));
      }
    }
  }
}

std::vector<std::string> ColumnsSeen::Warnings() const {
  // So many records with an id, and never two, are no chance.
  constexpr uint64_t kEnough = 100;
  // Times and amounts are beyond it; what is counted or measured for a network rarely is.
  constexpr float kLarge = 1e6f;
  std::vector<std::string> warnings;
  for (const Lists& lists : lists_) {
    if (lists.filled < kEnough || lists.several > 0) continue;
    warnings.push_back(absl::StrCat("data.columns: column ", lists.column->name(),
                                    " has never more than one id in the first ", lists.filled,
                                    " records that have any; does '", lists.column->separator(),
                                    "' part them (separator)?"));
  }
  for (const Pair& pair : pairs_) {
    if (pair.unequal == 0) continue;
    warnings.push_back(absl::StrCat("model.options: ", pair.first, " and ", pair.other,
                                    " are read place by place, and in ", pair.unequal,
                                    " of the first ", records_,
                                    " records they have different numbers of ids; an id that is "
                                    "left out moves those behind it"));
  }
  for (const Labels& labels : labels_) {
    if (labels.any || records_ == 0) continue;
    warnings.push_back(absl::StrCat("data.columns: column ", labels.column->name(),
                                    " has no label in the first ", records_,
                                    " records; is it meant to be missing where it is '",
                                    labels.column->missing_value(), "' (missing_value)?"));
  }
  for (const Numbers& numbers : numbers_) {
    if (numbers.largest <= kLarge) continue;
    warnings.push_back(absl::StrCat(
        "data.columns: column ", numbers.column->name(), " has numbers as large as ",
        numbers.largest, ", which the model takes as they are; scale them in the data",
        numbers.column->transform() == v1::LOG1P ? "" : ", or give the column transform: log1p"));
  }
  return warnings;
}

}  // namespace tessera::local

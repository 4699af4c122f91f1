#include "worker/dense/model_inputs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tessera::worker {

const ModelInputs::Table* ModelInputs::FindTable(const std::string& name) const {
  for (const Table& table : tables) {
    if (table.name == name) return &table;
  }
  return nullptr;
}

const ModelInputs::Sequence* ModelInputs::FindSequence(const std::string& column) const {
  for (const Sequence& sequence : sequences) {
    if (sequence.column == column) return &sequence;
  }
  return nullptr;
}

std::string SequenceInput(const std::string& column, const std::string& table) {
  return absl::StrCat(column, ".", table);
}
std::string LengthInput(const std::string& column) { return absl::StrCat(column, ".length"); }

std::vector<std::string> ModelInputs::TableNames() const {
  std::vector<std::string> names;
  for (const Table& table : tables) names.push_back(table.name);
  return names;
}

ModelInputs InputsOf(const v1::JobSpec& spec) {
  ModelInputs inputs;
  for (const v1::ColumnSpec& column : spec.data().columns()) {
    if (column.role() != v1::DENSE) continue;
    const auto width = spec.data().format() == v1::LIBSVM
                           ? static_cast<uint32_t>(column.index_end() - column.index_begin())
                           : 1u;
    inputs.dense_columns.push_back({column.name(), inputs.dense_width, width});
    inputs.dense_width += width;
  }
  for (int t = 0; t < spec.tables_size(); ++t) {
    const v1::TableSpec& spec_table = spec.tables(t);
    ModelInputs::Table table{spec_table.name(), static_cast<uint32_t>(t), spec_table.dim(), {}};
    bool is_read = false;
    for (const v1::ColumnSpec& column : spec.data().columns()) {
      const bool reads =
          column.role() == v1::SPARSE && std::find(column.table().begin(), column.table().end(),
                                                   spec_table.name()) != column.table().end();
      is_read |= reads;
      if (reads && column.pooling() != v1::SEQUENCE) table.columns.push_back(column.name());
    }
    if (!is_read) {
      inputs.unread_tables.push_back(table.name);
    } else if (!table.columns.empty()) {
      inputs.tables.push_back(std::move(table));
    }
  }
  uint32_t sparse_index = 0;
  for (const v1::ColumnSpec& column : spec.data().columns()) {
    if (column.role() != v1::SPARSE) continue;
    const uint32_t index = sparse_index++;
    if (column.pooling() != v1::SEQUENCE) continue;
    ModelInputs::Sequence sequence{column.name(), index, column.max_length(), {}};
    for (int t = 0; t < spec.tables_size(); ++t) {
      const v1::TableSpec& table = spec.tables(t);
      if (std::find(column.table().begin(), column.table().end(), table.name()) ==
          column.table().end()) {
        continue;
      }
      sequence.tables.push_back({table.name(), static_cast<uint32_t>(t), table.dim(), {}});
    }
    inputs.sequences.push_back(std::move(sequence));
  }
  return inputs;
}

}  // namespace tessera::worker

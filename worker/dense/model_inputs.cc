#include "worker/dense/model_inputs.h"

#include <algorithm>

namespace tessera::worker {

const ModelInputs::Table* ModelInputs::FindTable(const std::string& name) const {
  for (const Table& table : tables) {
    if (table.name == name) return &table;
  }
  return nullptr;
}

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
    for (const v1::ColumnSpec& column : spec.data().columns()) {
      const bool reads =
          column.role() == v1::SPARSE && std::find(column.table().begin(), column.table().end(),
                                                   spec_table.name()) != column.table().end();
      if (reads) table.columns.push_back(column.name());
    }
    if (table.columns.empty()) {
      inputs.unread_tables.push_back(table.name);
    } else {
      inputs.tables.push_back(std::move(table));
    }
  }
  return inputs;
}

}  // namespace tessera::worker

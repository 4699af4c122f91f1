#include "worker/data/record_parser.h"

namespace tessera::worker {

void EndRow(const Schema& schema, Batch* batch) {
  for (size_t i = 0; i < batch->sparse.size(); ++i) {
    SparseColumn& column = batch->sparse[i];
    const uint32_t most = schema.columns[schema.sparse[i]].max_ids;
    const size_t begin = column.offsets.back();
    if (most > 0 && column.keys.size() - begin > most) {
      const auto surplus = static_cast<std::ptrdiff_t>(column.keys.size() - begin - most);
      const auto first = static_cast<std::ptrdiff_t>(begin);
      column.keys.erase(column.keys.begin() + first, column.keys.begin() + first + surplus);
      if (!column.weights.empty()) {
        column.weights.erase(column.weights.begin() + first,
                             column.weights.begin() + first + surplus);
      }
    }
    column.offsets.push_back(static_cast<uint32_t>(column.keys.size()));
  }
}

}  // namespace tessera::worker

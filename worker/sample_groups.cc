#include "worker/sample_groups.h"

#include "absl/types/span.h"
#include "common/hash.h"

namespace tessera::worker {

int32_t FindGroupColumn(const Schema& schema, const std::string& name) {
  for (const uint32_t c : schema.sparse) {
    if (!name.empty() && schema.columns[c].name == name) {
      return static_cast<int32_t>(schema.columns[c].sparse_index);
    }
  }
  return -1;
}

void FindGroups(const Batch& batch, int32_t column, std::vector<uint64_t>* groups) {
  groups->clear();
  if (column < 0) return;
  const SparseColumn& ids = batch.sparse[static_cast<size_t>(column)];
  for (uint32_t r = 0; r < batch.size; ++r) {
    uint64_t group = 0;
    for (uint32_t k = ids.offsets[r]; k < ids.offsets[r + 1]; ++k) {
      group = MixPair(group, ids.keys[k]);
    }
    groups->push_back(group);
  }
}

uint32_t EndOfRun(const Batch& batch, int32_t column, uint32_t begin) {
  const SparseColumn& ids = batch.sparse[static_cast<size_t>(column)];
  const auto ids_of = [&ids](uint32_t row) {
    return absl::MakeConstSpan(ids.keys).subspan(ids.offsets[row],
                                                 ids.offsets[row + 1] - ids.offsets[row]);
  };
  uint32_t end = begin + 1;
  while (end < batch.size && ids_of(end) == ids_of(begin)) ++end;
  return end;
}

}  // namespace tessera::worker

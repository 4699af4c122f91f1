#include "worker/embeddings/embedding_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace tessera::worker {

EmbeddingPlan::EmbeddingPlan(const v1::JobSpec& spec, absl::Span<const Model::Input> inputs) {
  std::vector<const v1::ColumnSpec*> sparse;
  for (const v1::ColumnSpec& column : spec.data().columns()) {
    if (column.role() == v1::SPARSE) sparse.push_back(&column);
  }
  std::map<std::vector<uint32_t>, size_t> known;
  std::set<std::string> done;
  for (const Model::Input& first : inputs) {
    if (!done.insert(first.table).second) continue;
    Lookup& lookup = lookups_.emplace_back();
    lookup.table = first.table_index;
    lookup.dim = first.dim;
    lookup.wire_bfloat16 =
        spec.tables(static_cast<int>(first.table_index)).wire_type() == v1::BFLOAT16;
    KeySet key_set;
    std::map<size_t, size_t> fields;  // by input: its number of fields so far
    for (uint32_t c = 0; c < sparse.size(); ++c) {
      const auto& tables = sparse[c]->table();
      if (std::find(tables.begin(), tables.end(), first.table) == tables.end()) continue;
      const bool sequence = sparse[c]->pooling() == v1::SEQUENCE;
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i].table != first.table) continue;
        if (inputs[i].sequence != (sequence ? sparse[c]->name() : "")) continue;
        const size_t dim = first.dim;
        key_set.columns.push_back(c);
        lookup.fields.push_back({.pooling = sparse[c]->pooling(),
                                 .input = i,
                                 .at = sequence ? 0 : fields[i]++ * dim,
                                 .sample_floats = inputs[i].fields * dim});
      }
    }
    const auto [it, is_new] = known.emplace(key_set.columns, key_sets_.size());
    lookup.key_set = it->second;
    if (is_new) key_sets_.push_back(std::move(key_set));
  }
}

}  // namespace tessera::worker

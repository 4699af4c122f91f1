#include "worker/embeddings/key_preparer.h"

namespace tessera::worker {

void KeyPreparer::Prepare(const Batch& batch, std::vector<BatchKeys>* keys) {
  keys->resize(plan_->key_sets().size());
  for (size_t s = 0; s < keys->size(); ++s) {
    BatchKeys& out = (*keys)[s];
    std::vector<const SparseColumn*> columns;
    for (uint32_t c : plan_->key_sets()[s].columns) columns.push_back(&batch.sparse[c]);
    deduplicator_.Run(columns, &unique_);
    router_->Route(unique_.keys, &out.routed, &position_);
    out.row.resize(unique_.inverse.size());
    for (size_t i = 0; i < out.row.size(); ++i) out.row[i] = position_[unique_.inverse[i]];
  }
}

}  // namespace tessera::worker

#include "worker/embedding.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace tessera::worker {
namespace {

float PoolingScale(v1::Pooling pooling, uint32_t n) {
  switch (pooling) {
    case v1::MEAN:
      return n == 0 ? 0.0f : 1.0f / static_cast<float>(n);
    case v1::SQRTN:
      return n == 0 ? 0.0f : 1.0f / std::sqrt(static_cast<float>(n));
    default:
      return 1.0f;
  }
}

// Calls visit(sample, field, row index, factor) for every key occurrence, columns one after
// another.
template <typename Visit>
void ForEachKey(const Batch& batch, const EmbeddingPlan::KeySet& key_set,
                const EmbeddingPlan::Lookup& lookup, const BatchKeys& keys, Visit visit) {
  const uint32_t* row = keys.row.data();
  for (size_t f = 0; f < key_set.columns.size(); ++f) {
    const SparseColumn& column = batch.sparse[key_set.columns[f]];
    for (uint32_t b = 0; b < batch.size; ++b) {
      const uint32_t begin = column.offsets[b];
      const uint32_t end = column.offsets[b + 1];
      const float scale = PoolingScale(lookup.pooling[f], end - begin);
      for (uint32_t k = begin; k < end; ++k) {
        visit(b, f, *row++, column.weights.empty() ? scale : scale * column.weights[k]);
      }
    }
  }
}

}  // namespace

EmbeddingPlan::EmbeddingPlan(const v1::JobSpec& spec, absl::Span<const Model::Input> inputs) {
  std::vector<const v1::ColumnSpec*> sparse;
  for (const v1::ColumnSpec& column : spec.data().columns()) {
    if (column.role() == v1::SPARSE) sparse.push_back(&column);
  }
  std::map<std::vector<uint32_t>, size_t> known;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Lookup& lookup = lookups_.emplace_back();
    lookup.input = i;
    lookup.table = inputs[i].table_index;
    lookup.dim = inputs[i].dim;
    KeySet key_set;
    for (uint32_t c = 0; c < sparse.size(); ++c) {
      const auto& tables = sparse[c]->table();
      if (std::find(tables.begin(), tables.end(), inputs[i].table) == tables.end()) continue;
      key_set.columns.push_back(c);
      lookup.pooling.push_back(sparse[c]->pooling());
    }
    const auto [it, is_new] = known.emplace(key_set.columns, key_sets_.size());
    lookup.key_set = it->second;
    if (is_new) key_sets_.push_back(std::move(key_set));
  }
}

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

void PoolRows(const Batch& batch, const EmbeddingPlan::KeySet& key_set,
              const EmbeddingPlan::Lookup& lookup, const BatchKeys& keys,
              absl::Span<const float> rows, absl::Span<float> pooled) {
  const size_t dim = lookup.dim;
  const size_t fields = key_set.columns.size();
  std::fill(pooled.begin(), pooled.end(), 0.0f);
  ForEachKey(batch, key_set, lookup, keys, [&](uint32_t b, size_t f, uint32_t row, float factor) {
    const float* const from = rows.data() + row * dim;
    float* const to = pooled.data() + (b * fields + f) * dim;
    for (size_t d = 0; d < dim; ++d) to[d] += factor * from[d];
  });
}

void UnpoolGradients(const Batch& batch, const EmbeddingPlan::KeySet& key_set,
                     const EmbeddingPlan::Lookup& lookup, const BatchKeys& keys,
                     absl::Span<const float> pooled_gradient, absl::Span<float> gradients) {
  const size_t dim = lookup.dim;
  const size_t fields = key_set.columns.size();
  std::fill(gradients.begin(), gradients.end(), 0.0f);
  ForEachKey(batch, key_set, lookup, keys, [&](uint32_t b, size_t f, uint32_t row, float factor) {
    const float* const from = pooled_gradient.data() + (b * fields + f) * dim;
    float* const to = gradients.data() + row * dim;
    for (size_t d = 0; d < dim; ++d) to[d] += factor * from[d];
  });
}

}  // namespace tessera::worker

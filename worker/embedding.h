#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "tessera/v1/job.pb.h"
#include "worker/data/batch.h"
#include "worker/data/unique_keys.h"
#include "worker/dense/model.h"
#include "worker/parameter_client.h"

namespace tessera::worker {

// Which columns are looked up in which tables. Tables with the same columns share one key set:
// their duplicates are removed and their keys routed once. Immutable.
class EmbeddingPlan {
 public:
  struct KeySet {
    std::vector<uint32_t> columns;  // indices in Batch::sparse, in order
  };
  struct Lookup {
    size_t input = 0;    // of the model
    uint32_t table = 0;  // in JobTables(spec)
    uint32_t dim = 0;
    size_t key_set = 0;
    std::vector<v1::Pooling> pooling;  // by column of the key set
  };

  EmbeddingPlan(const v1::JobSpec& spec, absl::Span<const Model::Input> inputs);

  absl::Span<const KeySet> key_sets() const { return key_sets_; }
  absl::Span<const Lookup> lookups() const { return lookups_; }

 private:
  std::vector<KeySet> key_sets_;
  std::vector<Lookup> lookups_;
};

// The distinct keys of one key set in one batch.
struct BatchKeys {
  RoutedKeys routed;
  // For each key occurrence, columns one after another, rows within: its index in routed.keys.
  std::vector<uint32_t> row;
};

// Removes duplicates and routes. Scratch is kept between batches; one per thread.
class KeyPreparer {
 public:
  // Borrowed, outliving the preparer.
  KeyPreparer(const EmbeddingPlan* plan, const KeyRouter* router) : plan_(plan), router_(router) {}
  // Fills one BatchKeys per key set.
  void Prepare(const Batch& batch, std::vector<BatchKeys>* keys);

 private:
  const EmbeddingPlan* const plan_;
  const KeyRouter* const router_;
  KeyDeduplicator deduplicator_;
  UniqueKeys unique_;
  std::vector<uint32_t> position_;
};

// pooled[b, f, :] = scale * sum over column f's keys k of sample b of weight_k * rows[row_k, :],
// with scale 1 (SUM), 1/n (MEAN) or 1/sqrt(n) (SQRTN) for n keys; zero for none.
void PoolRows(const Batch& batch, const EmbeddingPlan::KeySet& key_set,
              const EmbeddingPlan::Lookup& lookup, const BatchKeys& keys,
              absl::Span<const float> rows,  // [keys, dim]
              absl::Span<float> pooled);     // [batch, columns, dim]

// The transpose: gradients[row_k, :] = the sum, in batch order, of scale * weight_k *
// pooled_gradient[b, f, :].
void UnpoolGradients(const Batch& batch, const EmbeddingPlan::KeySet& key_set,
                     const EmbeddingPlan::Lookup& lookup, const BatchKeys& keys,
                     absl::Span<const float> pooled_gradient,  // [batch, columns, dim]
                     absl::Span<float> gradients);             // [keys, dim], overwritten

}  // namespace tessera::worker

#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "tessera/v1/job.pb.h"
#include "worker/data/batch.h"
#include "worker/data/unique_keys.h"
#include "worker/dense/model.h"
#include "worker/parameter_client.h"

namespace tessera::worker {

// Which columns are looked up in which tables, and where their rows go. Tables with the same
// columns share one key set: their duplicates are removed and their keys routed once. All that
// reads one table is one lookup, so that a key's gradients meet in one sum. Immutable.
class EmbeddingPlan {
 public:
  struct KeySet {
    std::vector<uint32_t> columns;  // indices in Batch::sparse, in order
  };
  // What becomes of a column's rows: one field of an input, or with SEQUENCE all of one.
  struct Field {
    v1::Pooling pooling = v1::SUM;
    size_t input = 0;          // of the model
    size_t at = 0;             // floats of a sample before it
    size_t sample_floats = 0;  // of the input
  };
  struct Lookup {
    uint32_t table = 0;  // in JobTables(spec)
    uint32_t dim = 0;
    bool wire_bfloat16 = false;
    size_t key_set = 0;
    std::vector<Field> fields;  // by column of the key set
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

// The memory of the model's inputs, by their numbers: [batch, fields, dim] each.
using InputValues = absl::FunctionRef<absl::Span<float>(size_t input)>;
using InputGradients = absl::FunctionRef<absl::Span<const float>(size_t input)>;

// For each column f of the key set, with keys k of sample b:
//   SUM, MEAN, SQRTN  scale * sum of weight_k * rows[row_k, :], with scale 1, 1/n or 1/sqrt(n) for
//   n
//                     keys; zeros for none
//   MAX               by element the largest weight_k * rows[row_k, :]; zeros for none
//   SEQUENCE          weight_k * rows[row_k, :], key after key, then zeros
void PoolRows(const Batch& batch, const EmbeddingPlan::KeySet& key_set,
              const EmbeddingPlan::Lookup& lookup, const BatchKeys& keys,
              absl::Span<const float> rows,  // [keys, dim]
              InputValues inputs);

// The transpose: gradients[row_k, :] = the sum, in batch order, of what each place of the row has
// as its gradient. MAX: the first of equals has it.
void UnpoolGradients(const Batch& batch, const EmbeddingPlan::KeySet& key_set,
                     const EmbeddingPlan::Lookup& lookup, const BatchKeys& keys,
                     absl::Span<const float> rows,  // [keys, dim], as pooled
                     InputGradients inputs,
                     absl::Span<float> gradients);  // [keys, dim], overwritten

// What PoolRows multiplies a sum of n rows by: 1, 1/n or 1/sqrt(n).
float PoolingScale(v1::Pooling pooling, uint32_t n);

// lengths[b] = ids of the column in sample b.
void SequenceLengths(const SparseColumn& column, absl::Span<float> lengths);

}  // namespace tessera::worker

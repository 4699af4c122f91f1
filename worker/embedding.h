#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "tessera/v1/job.pb.h"
#include "worker/data/batch.h"
#include "worker/data/unique_keys.h"
#include "worker/dense/model.h"
#include "worker/key_router.h"

namespace tessera::worker {

// Which columns are looked up in which tables, and where their rows go. Tables with the same
// columns share one key set: their duplicates are removed and their keys routed once. Everything
// that reads one table is one lookup, so that a key's gradients meet in one sum. Immutable.
class EmbeddingPlan {
 public:
  struct KeySet {
    std::vector<uint32_t> columns;  // indices in Batch::sparse, in order
  };
  // Where a column's rows go: into one field of an input, or with SEQUENCE into a whole input.
  struct Field {
    v1::Pooling pooling = v1::SUM;
    size_t input = 0;          // index among the model's inputs
    size_t at = 0;             // where the field begins in a sample, in floats
    size_t sample_floats = 0;  // floats of a sample in the input
  };
  struct Lookup {
    uint32_t table = 0;  // index in TablesOf(spec)
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
  // [occurrences]: index in routed.keys; columns one after another, each in the order of samples.
  std::vector<uint32_t> row;
};

// Removes duplicate keys and routes the rest. Keeps its memory between batches; one per thread.
class KeyPreparer {
 public:
  // Both are borrowed and outlive the preparer.
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

// The memory of an input of the model, [batch, fields, dim], given its index.
using InputValues = absl::FunctionRef<absl::Span<float>(size_t input)>;
using InputGradients = absl::FunctionRef<absl::Span<const float>(size_t input)>;

// Fills, for each column of the key set and each sample b, its place from the n keys k of b there:
//   SUM, MEAN, SQRTN  scale * sum of weight_k * rows[row_k, :], where scale is 1, 1/n or 1/sqrt(n);
//                     zeros without keys
//   MAX               by element the largest weight_k * rows[row_k, :]; zeros without keys
//   SEQUENCE          weight_k * rows[row_k, :], key after key, then zeros
void PoolRows(const Batch& batch, const EmbeddingPlan::KeySet& key_set,
              const EmbeddingPlan::Lookup& lookup, const BatchKeys& keys,
              absl::Span<const float> rows,  // [keys, dim]
              InputValues inputs);

// The transpose of PoolRows: gradients[row_k, :] = the sum, in batch order, of the gradients of the
// places where the row was pooled. With MAX only the first of equal elements gets the gradient.
void UnpoolGradients(const Batch& batch, const EmbeddingPlan::KeySet& key_set,
                     const EmbeddingPlan::Lookup& lookup, const BatchKeys& keys,
                     absl::Span<const float> rows,  // [keys, dim], as pooled
                     InputGradients inputs,
                     absl::Span<float> gradients);  // [keys, dim], overwritten

// The scale of a sum of n rows in PoolRows: 1, 1/n or 1/sqrt(n).
float PoolingScale(v1::Pooling pooling, uint32_t n);

// lengths[b] = the number of ids of the column in sample b.
void SequenceLengths(const SparseColumn& column, absl::Span<float> lengths);

}  // namespace tessera::worker

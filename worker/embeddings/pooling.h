#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "tessera/v1/job.pb.h"
#include "worker/data/batch.h"
#include "worker/embeddings/embedding_plan.h"
#include "worker/embeddings/key_preparer.h"

namespace tessera::worker {

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

#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// Attention of several heads; all tensors are row-major, heads side by side in a row.
struct AttentionShape {
  int64_t batch;
  int64_t heads;
  int64_t queries;
  int64_t keys;
  int64_t key_dim;    // of a head
  int64_t value_dim;  // of a head
  float scale;        // factor of products of queries and keys
  bool causal;
  const float* lengths;  // [batch] keys of each sample; null: all have `keys`
  // Dropout of the weights: weights with a draw below the threshold become 0, the others are
  // multiplied. Null: no dropout.
  const uint64_t* random_key = nullptr;
  uint16_t threshold = 0;
  float kept_scale = 1;
};

// weights [batch, heads, queries, keys] = softmax(scale * query key^T) over the keys that a query
// attends to (math::AttendedKeys), 0 for other keys; y [batch, queries, heads * value_dim] =
// weights value. Query [batch, queries, heads * key_dim], key [batch, keys, heads * key_dim], value
// [batch, keys, heads * value_dim].
void Attention(Stream& stream, const AttentionShape& shape, const float* query, const float* key,
               const float* value, float* weights, float* y);

struct AttentionGradients {
  float* query;  // each may be null: nobody needs it
  float* key;
  float* value;
};
// Computes the gradients from y and dy. Overwrites the weights. Uses the stream's scratch if there
// are more queries than floats in a block's memory (ForEachGroup of launch.h).
void AttentionBackward(Stream& stream, const AttentionShape& shape, const float* query,
                       const float* key, const float* value, const float* y, const float* dy,
                       float* weights, const AttentionGradients& gradients);

}  // namespace tessera::cuda

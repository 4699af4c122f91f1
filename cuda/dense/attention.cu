#include "cuda/dense/attention.h"

#include "common/math/dropout.h"
#include "common/math/normalization/softmax.h"
#include "common/math/sequence_length.h"
#include "common/random.h"
#include "cuda/launch.h"

namespace tessera::cuda {
namespace {

// One head of one sample: where its rows lie in tensors whose rows have all heads.
struct Head {
  int64_t sample, head;

  TESSERA_HOST_DEVICE static Head Of(const AttentionShape& shape, int64_t group) {
    return {group / shape.heads, group % shape.heads};
  }
  TESSERA_HOST_DEVICE int64_t Row(const AttentionShape& shape, int64_t rows, int64_t row,
                                  int64_t dim) const {
    return ((sample * rows + row) * shape.heads + head) * dim;
  }
  TESSERA_HOST_DEVICE int64_t Keys(const AttentionShape& shape, int64_t query) const {
    const auto keys = static_cast<size_t>(shape.keys);
    const size_t length =
        shape.lengths == nullptr ? keys : math::SequenceLength(shape.lengths[sample], keys);
    return static_cast<int64_t>(
        math::AttendedKeys(length, static_cast<size_t>(query), shape.causal));
  }
};

TESSERA_HOST_DEVICE inline float Dot(const float* a, const float* b, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// Dropout's factor of weight number `i` of all.
TESSERA_HOST_DEVICE inline float Factor(const AttentionShape& shape, int64_t i) {
  if (shape.random_key == nullptr) return 1;
  const uint16_t draw = RandomBits16(*shape.random_key, static_cast<uint64_t>(i));
  return math::Dropout::Factor(math::Dropout::Stays(draw, shape.threshold), shape.kept_scale);
}

// In each head, for each query the sum over the keys (with `over_queries` for each key the sum over
// the queries) of weights [batch, heads, queries, keys] times rows of `dim`; with `dropped` the
// weights after dropout.
struct WeightedSum {
  AttentionShape shape;
  const float* weights;
  bool dropped;
  bool over_queries;
  const float* rows;
  int64_t dim;
  float* to;

  TESSERA_HOST_DEVICE void operator()(int64_t group, int i, float*) const {
    const Head head = Head::Of(shape, group);
    const int64_t own = i / dim, d = i % dim;
    const int64_t owns = over_queries ? shape.keys : shape.queries;
    const int64_t others = over_queries ? shape.queries : shape.keys;
    float sum = 0;
    for (int64_t other = 0; other < others; ++other) {
      const int64_t q = over_queries ? other : own, k = over_queries ? own : other;
      const int64_t at = (group * shape.queries + q) * shape.keys + k;
      const float weight = dropped ? weights[at] * Factor(shape, at) : weights[at];
      sum += weight * rows[head.Row(shape, others, other, dim) + d];
    }
    to[head.Row(shape, owns, own, dim) + d] = sum;
  }
};

}  // namespace

void Attention(Stream& stream, const AttentionShape& of, const float* query, const float* key,
               const float* value, float* weights, float* y) {
  const AttentionShape shape = of;
  const int queries = static_cast<int>(shape.queries), keys = static_cast<int>(shape.keys);
  const int pairs = queries * keys;
  ForEachGroup<128>(stream, "attention", shape.batch * shape.heads, 1,
                    Phase{pairs,
                          [=] TESSERA_HOST_DEVICE(int64_t group, int i, float*) {
                            const Head head = Head::Of(shape, group);
                            const int64_t q = i / keys, k = i % keys;
                            if (k >= head.Keys(shape, q)) return;
                            weights[group * pairs + i] =
                                shape.scale *
                                Dot(query + head.Row(shape, shape.queries, q, shape.key_dim),
                                    key + head.Row(shape, shape.keys, k, shape.key_dim),
                                    shape.key_dim);
                          }},
                    Phase{queries,
                          [=] TESSERA_HOST_DEVICE(int64_t group, int q, float*) {
                            float* const row = weights + group * pairs + int64_t{q} * keys;
                            const int64_t n = Head::Of(shape, group).Keys(shape, q);
                            float largest = -INFINITY, sum = 0;
                            for (int64_t k = 0; k < n; ++k)
                              largest = row[k] > largest ? row[k] : largest;
                            for (int64_t k = 0; k < n; ++k) {
                              row[k] = math::Softmax::Numerator(row[k], largest);
                              sum += row[k];
                            }
                            for (int64_t k = 0; k < n; ++k) row[k] *= 1 / sum;
                            for (int64_t k = n; k < keys; ++k) row[k] = 0;
                          }},
                    Phase{queries * static_cast<int>(shape.value_dim),
                          WeightedSum{shape, weights, true, false, value, shape.value_dim, y}});
}

// With the weights w, what dropout multiplies them by, f, and dw = f (dy value^T):
//   dvalue = (f w)^T dy;  ds = scale w (dw - dy . y) over the products of queries and keys
//   dquery = ds key;  dkey = ds^T query
// dy . y is the sum of w dw over the keys.
void AttentionBackward(Stream& stream, const AttentionShape& of, const float* query,
                       const float* key, const float* value, const float* y, const float* dy,
                       float* weights, const AttentionGradients& gradients) {
  const AttentionShape shape = of;
  const AttentionGradients to = gradients;
  const int queries = static_cast<int>(shape.queries), keys = static_cast<int>(shape.keys);
  const int key_dim = static_cast<int>(shape.key_dim);
  const int value_dim = static_cast<int>(shape.value_dim);
  const int pairs = queries * keys;
  ForEachGroup<128>(
      stream, "attention's gradient", shape.batch * shape.heads, queries,
      // dy . y, which all keys of a query share.
      Phase{queries,
            [=] TESSERA_HOST_DEVICE(int64_t group, int q, float* shared) {
              const int64_t row = Head::Of(shape, group).Row(shape, queries, q, value_dim);
              shared[q] = Dot(dy + row, y + row, value_dim);
            }},
      Phase{to.value == nullptr ? 0 : keys * value_dim,
            WeightedSum{shape, weights, true, true, dy, value_dim, to.value}},
      Phase{pairs,
            [=] TESSERA_HOST_DEVICE(int64_t group, int i, float* shared) {
              const Head head = Head::Of(shape, group);
              const int64_t q = i / keys, k = i % keys, at = group * pairs + i;
              const int64_t row = head.Row(shape, queries, q, value_dim);
              const float dw =
                  Factor(shape, at) *
                  Dot(dy + row, value + head.Row(shape, keys, k, value_dim), value_dim);
              weights[at] = shape.scale * math::Softmax::Gradient(weights[at], dw, shared[q]);
            }},
      Phase{to.query == nullptr ? 0 : queries * key_dim,
            WeightedSum{shape, weights, false, false, key, key_dim, to.query}},
      Phase{to.key == nullptr ? 0 : keys * key_dim,
            WeightedSum{shape, weights, false, true, query, key_dim, to.key}});
}

}  // namespace tessera::cuda

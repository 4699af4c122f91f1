#include "worker/embeddings/pooling.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tessera::worker {
namespace {

// The keys of one column in one sample.
struct Occurrence {
  uint32_t sample;
  const EmbeddingPlan::Field* field;
  absl::Span<const uint32_t> rows;  // of each key
  const float* weights;             // of each key; null: all 1

  float Weight(size_t k) const { return weights == nullptr ? 1.0f : weights[k]; }
  // Where the sample's field begins in the input.
  size_t at() const { return sample * field->sample_floats + field->at; }
};

// Calls visit for every column and sample, columns one after another: the rows of one column fit
// the processor's cache, the rows of all columns do not.
template <typename Visit>
void ForEachOccurrence(const Batch& batch, const EmbeddingPlan::KeySet& key_set,
                       const EmbeddingPlan::Lookup& lookup, const BatchKeys& keys, Visit visit) {
  const uint32_t* row = keys.row.data();
  for (size_t f = 0; f < key_set.columns.size(); ++f) {
    const SparseColumn& column = batch.sparse[key_set.columns[f]];
    for (uint32_t b = 0; b < batch.size; ++b) {
      const uint32_t begin = column.offsets[b];
      const size_t n = column.offsets[b + 1] - begin;
      visit(Occurrence{b,
                       &lookup.fields[f],
                       {row, n},
                       column.weights.empty() ? nullptr : column.weights.data() + begin});
      row += n;
    }
  }
}

// to[d] += factor * from[d]. Inlined, since rows are only a few vectors long.
void AddScaled(float factor, const float* __restrict from, size_t dim, float* __restrict to) {
  constexpr size_t kVector = 8;
  size_t d = 0;
  for (; d + kVector <= dim; d += kVector) {
    for (size_t i = d; i < d + kVector; ++i) to[i] += factor * from[i];
  }
  for (; d < dim; ++d) to[d] += factor * from[d];
}

// Calls visit(d, k) for each element d with the key k whose row has the largest element there.
template <typename Visit>
void ForLargest(const Occurrence& of, const float* rows, size_t dim, Visit visit) {
  for (size_t d = 0; d < dim && !of.rows.empty(); ++d) {
    size_t largest = 0;
    const auto value = [&](size_t k) { return of.Weight(k) * rows[of.rows[k] * dim + d]; };
    for (size_t k = 1; k < of.rows.size(); ++k) {
      if (value(k) > value(largest)) largest = k;
    }
    visit(d, largest);
  }
}

// The row of key k goes to at() + k * stride, multiplied by scale * weight.
struct Places {
  Places(const Occurrence& of, size_t dim)
      : scale(PoolingScale(of.field->pooling, static_cast<uint32_t>(of.rows.size()))),
        stride(of.field->pooling == v1::SEQUENCE ? dim : 0) {}
  const float scale;
  const size_t stride;
};

}  // namespace

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

void PoolRows(const Batch& batch, const EmbeddingPlan::KeySet& key_set,
              const EmbeddingPlan::Lookup& lookup, const BatchKeys& keys,
              absl::Span<const float> rows, InputValues inputs) {
  const size_t dim = lookup.dim;
  std::vector<float*> to;  // by column
  for (const EmbeddingPlan::Field& field : lookup.fields) {
    const absl::Span<float> values = inputs(field.input);
    // Zeros each input once, at its first field.
    if (field.at == 0) std::fill(values.begin(), values.end(), 0.0f);
    to.push_back(values.data());
  }
  ForEachOccurrence(batch, key_set, lookup, keys, [&](const Occurrence& of) {
    float* const values = to[static_cast<size_t>(of.field - lookup.fields.data())];
    if (of.field->pooling == v1::MAX) {
      ForLargest(of, rows.data(), dim, [&](size_t d, size_t k) {
        values[of.at() + d] = of.Weight(k) * rows[of.rows[k] * dim + d];
      });
      return;
    }
    const Places places(of, dim);
    float* place = values + of.at();
    for (size_t k = 0; k < of.rows.size(); ++k, place += places.stride) {
      const float factor = of.weights == nullptr ? places.scale : places.scale * of.weights[k];
      AddScaled(factor, rows.data() + of.rows[k] * dim, dim, place);
    }
  });
}

void UnpoolGradients(const Batch& batch, const EmbeddingPlan::KeySet& key_set,
                     const EmbeddingPlan::Lookup& lookup, const BatchKeys& keys,
                     absl::Span<const float> rows, InputGradients inputs,
                     absl::Span<float> gradients) {
  const size_t dim = lookup.dim;
  std::fill(gradients.begin(), gradients.end(), 0.0f);
  std::vector<const float*> from;  // by column
  for (const EmbeddingPlan::Field& field : lookup.fields) {
    from.push_back(inputs(field.input).data());
  }
  ForEachOccurrence(batch, key_set, lookup, keys, [&](const Occurrence& of) {
    const float* const slopes = from[static_cast<size_t>(of.field - lookup.fields.data())];
    if (of.field->pooling == v1::MAX) {
      ForLargest(of, rows.data(), dim, [&](size_t d, size_t k) {
        gradients[of.rows[k] * dim + d] += of.Weight(k) * slopes[of.at() + d];
      });
      return;
    }
    const Places places(of, dim);
    const float* place = slopes + of.at();
    for (size_t k = 0; k < of.rows.size(); ++k, place += places.stride) {
      const float factor = of.weights == nullptr ? places.scale : places.scale * of.weights[k];
      AddScaled(factor, place, dim, gradients.data() + of.rows[k] * dim);
    }
  });
}

void SequenceLengths(const SparseColumn& column, absl::Span<float> lengths) {
  for (size_t b = 0; b < lengths.size(); ++b) {
    lengths[b] = static_cast<float>(column.offsets[b + 1] - column.offsets[b]);
  }
}

}  // namespace tessera::worker

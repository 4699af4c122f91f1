#include "cuda/rows/pooling.h"

#include "cuda/launch.h"

namespace tessera::cuda {
namespace {

TESSERA_HOST_DEVICE inline float Factor(const PooledEntries& entries, uint32_t entry) {
  return entries.factors == nullptr ? 1.0f : entries.factors[entry];
}

TESSERA_HOST_DEVICE inline const float* RowOf(const BatchRows& rows, uint32_t row) {
  const uint32_t at = rows.at[row];
  return at < rows.slots ? rows.kept + at * rows.dim : rows.fresh + (at - rows.slots) * rows.dim;
}

TESSERA_HOST_DEVICE inline float Value(const BatchRows& rows, const PooledEntries& entries,
                                       uint32_t entry, int64_t d) {
  return Factor(entries, entry) * RowOf(rows, entries.rows[entry])[d];
}

// Of a place that has entries: the first of those whose value is the largest.
TESSERA_HOST_DEVICE inline uint32_t Largest(const BatchRows& rows, const PooledEntries& entries,
                                            int64_t place, int64_t d) {
  uint32_t largest = entries.begins[place];
  float value = Value(rows, entries, largest, d);
  for (uint32_t entry = largest + 1; entry < entries.begins[place + 1]; ++entry) {
    const float other = Value(rows, entries, entry, d);
    if (!(other > value)) continue;
    largest = entry;
    value = other;
  }
  return largest;
}

// `gradient(entry, d)` is what an entry adds to its row's.
template <typename Gradient>
void SumByRow(Stream& stream, const PooledEntries& entries, int64_t dim, float* gradients, bool add,
              Gradient gradient) {
  float* const of_chunks = stream.Scratch(static_cast<size_t>(entries.chunks * dim));
  ForEach(stream, "gradients of rows", entries.chunks * dim, [=] TESSERA_HOST_DEVICE(int64_t i) {
    const int64_t chunk = i / dim, d = i % dim;
    float sum = 0;
    for (uint32_t at = entries.chunk_begins[chunk]; at < entries.chunk_begins[chunk + 1]; ++at) {
      sum += gradient(entries.order[at], d);
    }
    of_chunks[i] = sum;
  });
  ForEach(stream, "sums of gradients of rows", entries.batch_rows * dim,
          [=] TESSERA_HOST_DEVICE(int64_t i) {
            const int64_t row = i / dim, d = i % dim;
            float sum = add ? gradients[i] : 0.0f;
            for (int64_t chunk = entries.row_begins[row]; chunk < entries.row_begins[row + 1];
                 ++chunk) {
              sum += of_chunks[chunk * dim + d];
            }
            gradients[i] = sum;
          });
}

}  // namespace

void PoolSums(Stream& stream, const BatchRows& rows, const PooledEntries& entries, float* y) {
  ForEach(stream, "sums of rows", entries.places * rows.dim, [=] TESSERA_HOST_DEVICE(int64_t i) {
    const int64_t place = i / rows.dim, d = i % rows.dim;
    float sum = 0;
    for (uint32_t entry = entries.begins[place]; entry < entries.begins[place + 1]; ++entry) {
      sum += Value(rows, entries, entry, d);
    }
    y[i] = sum;
  });
}

void PoolLargest(Stream& stream, const BatchRows& rows, const PooledEntries& entries, float* y) {
  ForEach(stream, "largest of rows", entries.places * rows.dim, [=] TESSERA_HOST_DEVICE(int64_t i) {
    const int64_t place = i / rows.dim, d = i % rows.dim;
    if (entries.begins[place] == entries.begins[place + 1]) return;
    y[i] = Value(rows, entries, Largest(rows, entries, place, d), d);
  });
}

void UnpoolSums(Stream& stream, const PooledEntries& entries, int64_t dim, const float* dy,
                float* gradients, bool add) {
  SumByRow(stream, entries, dim, gradients, add,
           [=] TESSERA_HOST_DEVICE(uint32_t entry, int64_t d) {
             return Factor(entries, entry) * dy[entries.place_of[entry] * dim + d];
           });
}

void UnpoolLargest(Stream& stream, const BatchRows& rows, const PooledEntries& entries,
                   const float* dy, float* gradients, bool add) {
  const int64_t dim = rows.dim;
  SumByRow(stream, entries, dim, gradients, add,
           [=] TESSERA_HOST_DEVICE(uint32_t entry, int64_t d) {
             const uint32_t place = entries.place_of[entry];
             if (Largest(rows, entries, place, d) != entry) return 0.0f;
             return Factor(entries, entry) * dy[place * dim + d];
           });
}

void KeepRows(Stream& stream, const float* fresh, const uint32_t* from, const uint32_t* slots,
              int64_t count, int64_t dim, float* kept) {
  ForEach(stream, "rows that are kept", count * dim, [=] TESSERA_HOST_DEVICE(int64_t i) {
    const int64_t row = i / dim, d = i % dim;
    kept[slots[row] * dim + d] = fresh[from[row] * dim + d];
  });
}

}  // namespace tessera::cuda

#include "cuda/rows/pooling.h"

#include <algorithm>

#include "cuda/pack.h"

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

// Entries [begin, end).
struct Range {
  uint32_t begin, end;
};

TESSERA_HOST_DEVICE inline Range EntriesOf(const PooledEntries& entries, int64_t place) {
  const auto at = static_cast<uint32_t>(place);
  if (entries.begins == nullptr) return {at, at + 1};
  return {entries.begins[at], entries.begins[at + 1]};
}

TESSERA_HOST_DEVICE inline int64_t PlaceOf(const PooledEntries& entries, uint32_t entry) {
  return entries.place_of == nullptr ? entry : entries.place_of[entry];
}

// The range of a chunk's entries in `order`.
TESSERA_HOST_DEVICE inline Range ChunkOf(const PooledEntries& entries, uint32_t chunk) {
  const uint32_t of = entries.long_of[chunk], row = entries.long_row[of];
  const uint32_t begin =
      entries.row_begins[row] + (chunk - entries.long_begins[of]) * kChunkEntries;
  const uint32_t end = entries.row_begins[row + 1];
  return {begin, begin + kChunkEntries < end ? begin + kChunkEntries : end};
}

// The first entry with the largest value, of a place that has entries.
TESSERA_HOST_DEVICE inline uint32_t Largest(const BatchRows& rows, const PooledEntries& entries,
                                            int64_t place, int64_t d) {
  const Range of = EntriesOf(entries, place);
  uint32_t largest = of.begin;
  float value = Value(rows, entries, largest, d);
  for (uint32_t entry = largest + 1; entry < of.end; ++entry) {
    const float other = Value(rows, entries, entry, d);
    if (!(other > value)) continue;
    largest = entry;
    value = other;
  }
  return largest;
}

// Sums gradients by row: `gradient(entry, d)` is the pack that an entry adds from element d on.
template <int kFloats, typename Gradient>
void SumByRow(Stream& stream, const PooledEntries& entries, int64_t dim, float* gradients, bool add,
              Gradient gradient) {
  using Sum = Pack<kFloats>;
  const char* const what = "gradients of rows";
  const int64_t packs = dim / kFloats;
  // The sum over entries [begin, end) of `order`, in order; several are looked up at once.
  const auto sum_of = [=] TESSERA_HOST_DEVICE(uint32_t begin, uint32_t end, int64_t d, Sum sum) {
    constexpr uint32_t kAtOnce = 4;
    for (uint32_t first = begin; first < end; first += kAtOnce) {
      Sum some[kAtOnce];
      for (uint32_t k = 0; k < kAtOnce; ++k) {
        some[k] = gradient(entries.order[first + k < end ? first + k : end - 1], d);
      }
      for (uint32_t k = 0; k < kAtOnce; ++k) {
        if (first + k < end) sum.Add(some[k]);
      }
    }
    return sum;
  };
  float* const of_chunks = stream.Scratch(static_cast<size_t>(entries.chunks * dim));
  ForEachInRows(stream, what, entries.batch_rows + entries.chunks, packs,
                [=] TESSERA_HOST_DEVICE(int64_t i, int64_t pack) {
                  const int64_t d = pack * kFloats;
                  if (i < entries.batch_rows) {
                    const Range of = {entries.row_begins[i], entries.row_begins[i + 1]};
                    if (of.end - of.begin > kChunkEntries) return;
                    float* const to = gradients + i * dim + d;
                    sum_of(of.begin, of.end, d, add ? Sum::At(to) : Sum()).Store(to);
                  } else {
                    const int64_t chunk = i - entries.batch_rows;
                    const Range of = ChunkOf(entries, static_cast<uint32_t>(chunk));
                    sum_of(of.begin, of.end, d, Sum()).Store(of_chunks + chunk * dim + d);
                  }
                });
  // Few enough floats that a group needs no scratch, because scratch holds the chunks.
  const int slices = static_cast<int>(std::clamp<int64_t>(8192 / dim, 1, 64));
  const int of_dim = static_cast<int>(dim), of_packs = of_dim / kFloats;
  ForEachGroup<256>(stream, what, entries.long_rows, slices * of_dim,
                    Phase{slices * of_packs,
                          [=] TESSERA_HOST_DEVICE(int64_t of, int at, float* shared) {
                            const int slice = at / of_packs, d = at % of_packs * kFloats;
                            Sum sum;
                            TESSERA_UNROLL
                            for (uint32_t chunk = entries.long_begins[of] + slice;
                                 chunk < entries.long_begins[of + 1]; chunk += slices) {
                              sum.Add(Sum::At(of_chunks + chunk * dim + d));
                            }
                            sum.Store(shared + slice * of_dim + d);
                          }},
                    Phase{of_packs, [=] TESSERA_HOST_DEVICE(int64_t of, int pack, float* shared) {
                            const int d = pack * kFloats;
                            float* const to = gradients + entries.long_row[of] * dim + d;
                            Sum sum = add ? Sum::At(to) : Sum();
                            for (int slice = 0; slice < slices; ++slice) {
                              sum.Add(Sum::At(shared + slice * of_dim + d));
                            }
                            sum.Store(to);
                          }});
}

template <int kFloats>
void SumPlaces(Stream& stream, const BatchRows& rows, const PooledEntries& entries, float* y) {
  ForEachInRows(stream, "sums of rows", entries.places, rows.dim / kFloats,
                [=] TESSERA_HOST_DEVICE(int64_t place, int64_t pack) {
                  const int64_t d = pack * kFloats;
                  const Range of = EntriesOf(entries, place);
                  Pack<kFloats> sum;
                  TESSERA_UNROLL
                  for (uint32_t entry = of.begin; entry < of.end; ++entry) {
                    sum.Add(Factor(entries, entry), RowOf(rows, entries.rows[entry]) + d);
                  }
                  sum.Store(y + place * rows.dim + d);
                });
}

template <int kFloats>
void SumGradients(Stream& stream, const PooledEntries& entries, int64_t dim, const float* dy,
                  float* gradients, bool add) {
  SumByRow<kFloats>(stream, entries, dim, gradients, add,
                    [=] TESSERA_HOST_DEVICE(uint32_t entry, int64_t d) {
                      Pack<kFloats> sum;
                      sum.Add(Factor(entries, entry), dy + PlaceOf(entries, entry) * dim + d);
                      return sum;
                    });
}

template <int kFloats>
void Keep(Stream& stream, const float* fresh, const uint32_t* from, const uint32_t* slots,
          int64_t count, int64_t dim, float* kept) {
  ForEachInRows(stream, "rows that are kept", count, dim / kFloats,
                [=] TESSERA_HOST_DEVICE(int64_t row, int64_t pack) {
                  const int64_t d = pack * kFloats;
                  Pack<kFloats>::At(fresh + from[row] * dim + d).Store(kept + slots[row] * dim + d);
                });
}

}  // namespace

void PoolSums(Stream& stream, const BatchRows& rows, const PooledEntries& entries, float* y) {
  if (InPacks(rows.dim, rows.kept, rows.fresh, y)) {
    return SumPlaces<kPackFloats>(stream, rows, entries, y);
  }
  SumPlaces<1>(stream, rows, entries, y);
}

void PoolLargest(Stream& stream, const BatchRows& rows, const PooledEntries& entries, float* y) {
  ForEachInRows(stream, "largest of rows", entries.places, rows.dim,
                [=] TESSERA_HOST_DEVICE(int64_t place, int64_t d) {
                  const Range of = EntriesOf(entries, place);
                  if (of.begin == of.end) return;
                  y[place * rows.dim + d] =
                      Value(rows, entries, Largest(rows, entries, place, d), d);
                });
}

void UnpoolSums(Stream& stream, const PooledEntries& entries, int64_t dim, const float* dy,
                float* gradients, bool add) {
  if (InPacks(dim, dy, gradients)) {
    return SumGradients<kPackFloats>(stream, entries, dim, dy, gradients, add);
  }
  SumGradients<1>(stream, entries, dim, dy, gradients, add);
}

void UnpoolLargest(Stream& stream, const BatchRows& rows, const PooledEntries& entries,
                   const float* dy, float* gradients, bool add) {
  const int64_t dim = rows.dim;
  SumByRow<1>(stream, entries, dim, gradients, add,
              [=] TESSERA_HOST_DEVICE(uint32_t entry, int64_t d) {
                Pack<1> sum;
                const int64_t place = PlaceOf(entries, entry);
                if (Largest(rows, entries, place, d) != entry) return sum;
                sum.Add(Factor(entries, entry), dy + place * dim + d);
                return sum;
              });
}

void KeepRows(Stream& stream, const float* fresh, const uint32_t* from, const uint32_t* slots,
              int64_t count, int64_t dim, float* kept) {
  if (InPacks(dim, fresh, kept)) {
    return Keep<kPackFloats>(stream, fresh, from, slots, count, dim, kept);
  }
  Keep<1>(stream, fresh, from, slots, count, dim, kept);
}

}  // namespace tessera::cuda

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tessera::worker {

// The ids of one SPARSE column for all rows of a batch, as CSR: row r has keys[offsets[r] ..
// offsets[r+1]).
struct SparseColumn {
  std::vector<uint32_t> offsets = {0};  // [size + 1]
  std::vector<uint64_t> keys;
  std::vector<float> weights;  // empty: all 1; else one per key
  // Every row is known to have exactly one key (FindOneEach). False: not known.
  bool one_each = false;
};

// Some records, in the form that training uses. Readers make batches; all later parts take them.
struct Batch {
  uint32_t size = 0;                 // rows
  std::vector<float> labels;         // [size, label columns], row-major
  std::vector<float> weights;        // [size]; empty: the data has no WEIGHT column
  std::vector<float> dense;          // [size, dense_width], row-major
  std::vector<SparseColumn> sparse;  // one per SPARSE column, in the spec's order

  size_t label_width() const { return size == 0 ? 0 : labels.size() / size; }
  size_t dense_width() const { return size == 0 ? 0 : dense.size() / size; }
};

// Empties `batch` for `sparse_columns` columns; its vectors keep their memory.
void ClearBatch(size_t sparse_columns, Batch* batch);

// Sets `to` to the given rows of `from`, in that order; a row may come more than once. Reuses the
// memory of `to`. Each row < from.size.
void GatherRows(const Batch& from, absl::Span<const uint32_t> rows, Batch* to);

// Appends rows [begin, end) of `from` to `to`, which has the same columns (ClearBatch).
void AppendRows(const Batch& from, uint32_t begin, uint32_t end, Batch* to);

// Makes room in `to`, which is empty, for `rows` rows that are similar to those of `like`.
void ReserveRows(const Batch& like, uint64_t rows, Batch* to);

// Sets `one_each` of columns that have one key in every row, so that GatherRows need not look.
void FindOneEach(Batch* batch);

// Bytes of heap memory that the batch's vectors hold.
size_t HeapBytes(const Batch& batch);

}  // namespace tessera::worker

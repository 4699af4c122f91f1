#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// The pooled lookup of a batch in one table, and its transpose. All pointers are to the card's
// memory. A place is `dim` floats of an input [places, dim]; an entry is a row that is pooled into
// a place, with its factor.

// The rows of a batch, some of which the card has kept (row_slots.h): row r is kept[at[r]] if at[r]
// is below `slots`, else fresh[at[r] - slots].
struct BatchRows {
  const float* kept = nullptr;  // [slots, dim]
  uint32_t slots = 0;
  const float* fresh = nullptr;  // [rows that are not kept, dim]
  const uint32_t* at = nullptr;  // [rows]
  int64_t dim = 0;
};

// The entries of all places, ordered by place, and once more by row. The entries of a row that has
// more than kChunkEntries are cut into chunks, so that a row of many places is not the work of one
// thread.
constexpr uint32_t kChunkEntries = 32;
struct PooledEntries {
  int64_t places = 0;
  const uint32_t* begins = nullptr;  // [places + 1] each place's first entry, and the end
  const uint32_t* rows = nullptr;    // [entries] the entry's row of the batch
  const float* factors = nullptr;    // [entries]; null: all 1
  // [entries]; null, like `begins`, if place i has entry i alone.
  const uint32_t* place_of = nullptr;

  int64_t batch_rows = 0;
  const uint32_t* row_begins = nullptr;  // [batch_rows + 1] where each row begins in `order`
  const uint32_t* order = nullptr;       // [entries] entries sorted by row, then ascending

  int64_t long_rows = 0, chunks = 0;
  const uint32_t* long_row = nullptr;     // [long_rows] the rows cut into chunks
  const uint32_t* long_begins = nullptr;  // [long_rows + 1] each one's first chunk
  const uint32_t* long_of = nullptr;      // [chunks] the long row of each chunk
};

// y [places, dim] = the sum of factor * row over each place's entries, in order; 0 without entries.
void PoolSums(Stream& stream, const BatchRows& rows, const PooledEntries& entries, float* y);
// y = for each element the largest factor * row. Writes only places that have entries.
void PoolLargest(Stream& stream, const BatchRows& rows, const PooledEntries& entries, float* y);

// gradients [batch_rows, dim] (+)= for each row the sum of factor * dy over its entries' places;
// for a long row chunk by chunk, then over the chunks. UnpoolLargest gives an element's gradient to
// the first of equal entries. Both use the stream's scratch.
void UnpoolSums(Stream& stream, const PooledEntries& entries, int64_t dim, const float* dy,
                float* gradients, bool add);
void UnpoolLargest(Stream& stream, const BatchRows& rows, const PooledEntries& entries,
                   const float* dy, float* gradients, bool add);

// Keeps fresh rows: fresh[from[i]] goes to kept[slots[i]]; no slot occurs twice.
void KeepRows(Stream& stream, const float* fresh, const uint32_t* from, const uint32_t* slots,
              int64_t count, int64_t dim, float* kept);

}  // namespace tessera::cuda

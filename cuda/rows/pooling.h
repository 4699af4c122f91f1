#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// The pooled lookup of a batch in one table, and its transpose. All that is pointed to is the
// card's. A place is `dim` floats of an input [places, dim]; an entry is a row that is pooled into
// one, with its factor.

// The rows of a batch, some of which the card has kept (row_slots.h): row r is the one of `kept` at
// at[r], or where that is `slots` or above, the one of `fresh` at at[r] - slots.
struct BatchRows {
  const float* kept = nullptr;  // [slots, dim]
  uint32_t slots = 0;
  const float* fresh = nullptr;  // [rows that are not kept, dim]
  const uint32_t* at = nullptr;  // [rows]
  int64_t dim = 0;
};

// The entries of all places, place after place, and once more row after row. Those of a row that
// has more than kChunkEntries are cut into chunks, so that one that many places have is not the
// work of one thread.
constexpr uint32_t kChunkEntries = 32;
struct PooledEntries {
  int64_t places = 0;
  const uint32_t* begins = nullptr;    // [places + 1] the first entry of each, and the end
  const uint32_t* rows = nullptr;      // [entries] its row of the batch
  const float* factors = nullptr;      // [entries]; null: all 1
  const uint32_t* place_of = nullptr;  // [entries]; null, as `begins`: place i has entry i alone

  int64_t batch_rows = 0;
  const uint32_t* row_begins = nullptr;  // [batch_rows + 1] where each begins in `order`
  const uint32_t* order = nullptr;       // [entries] by row, ascending within it

  int64_t long_rows = 0, chunks = 0;
  const uint32_t* long_row = nullptr;     // [long_rows] the rows that are cut
  const uint32_t* long_begins = nullptr;  // [long_rows + 1] the first chunk of each
  const uint32_t* long_of = nullptr;      // [chunks] which of the long rows each belongs to
};

// y [places, dim]: each the sum of factor * row, in order; 0 without entries.
void PoolSums(Stream& stream, const BatchRows& rows, const PooledEntries& entries, float* y);
// Only places that have entries: by element the largest factor * row.
void PoolLargest(Stream& stream, const BatchRows& rows, const PooledEntries& entries, float* y);

// gradients [batch_rows, dim] (+)= the sum of what the row's places have in dy, times its factors;
// of long rows chunks first, then their sums. Of PoolLargest the first of equals has the gradient.
// Both use the stream's scratch.
void UnpoolSums(Stream& stream, const PooledEntries& entries, int64_t dim, const float* dy,
                float* gradients, bool add);
void UnpoolLargest(Stream& stream, const BatchRows& rows, const PooledEntries& entries,
                   const float* dy, float* gradients, bool add);

// Keeps fresh rows: the one at from[i] of `fresh` goes to slots[i] of `kept`; no slot occurs twice.
void KeepRows(Stream& stream, const float* fresh, const uint32_t* from, const uint32_t* slots,
              int64_t count, int64_t dim, float* kept);

}  // namespace tessera::cuda

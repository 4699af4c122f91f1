#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "ps/rows/key_batch.h"
#include "ps/rows/row_layout.h"
#include "ps/rows/row_map.h"

namespace tessera::ps {

// Finds the rows of many keys, in blocks. While the caller works on the rows of one block, the rows
// of the next and the buckets of the one after are on their way from memory. For one stripe, whose
// maps do not change meanwhile; not thread-safe.
class RowSearch {
 public:
  static constexpr size_t kBlock = 16;

  // `maps`: those of the stripe. `bytes`: how much of each row, from its head on, will be used;
  // `block_bytes`: the size of the rows' blocks.
  RowSearch(const RowMap* maps, absl::Span<const KeyBatch::Item> items, size_t bytes,
            size_t block_bytes)
      : maps_(maps),
        items_(items),
        lines_(LinesOf(bytes, block_bytes)),
        block_(lines_ <= 6 ? kBlock : kBlock / 2) {
    LoadBuckets(0);
    LoadBuckets(block_);
    LoadRows(0);
  }

  // The rows of the next items, at most kBlock, in the order of the items; null: the key has no
  // row. Valid until the next call. Empty: there are no more items.
  absl::Span<Row* const> Next() {
    const size_t begin = next_;
    const size_t end = std::min(begin + block_, items_.size());
    if (begin == end) return {};
    next_ = end;
    LoadBuckets(begin + 2 * block_);
    LoadRows(end);
    Row** const rows = rows_ + begin % (2 * kBlock);
    for (size_t i = begin; i < end; ++i) {
      Row*& row = rows[i - begin];
      if (row == nullptr || row->key == items_[i].key) [[likely]]
        continue;
      row = maps_[items_[i].map].Find(items_[i].hash, items_[i].key);
    }
    return {rows, end - begin};
  }
  // The items of the next call.
  absl::Span<const KeyBatch::Item> coming() const { return items_.subspan(next_, block_); }

 private:
  void LoadBuckets(size_t begin) {
    const size_t end = std::min(begin + block_, items_.size());
    for (size_t i = begin; i < end; ++i) {
      homes_[i % (2 * kBlock)] = maps_[items_[i].map].Prefetch(items_[i].hash);
    }
  }
  void LoadRows(size_t begin) {
    const size_t end = std::min(begin + block_, items_.size());
    for (size_t i = begin; i < end; ++i) {
      Row* const row = maps_[items_[i].map].Candidate(items_[i].hash, homes_[i % (2 * kBlock)]);
      rows_[i % (2 * kBlock)] = row;
      PrefetchRow(row, lines_);
    }
  }

  const RowMap* const maps_;
  const absl::Span<const KeyBatch::Item> items_;
  const uint32_t lines_;
  const size_t block_;  // divides kBlock; fewer if rows are long, so that they stay in the cache
  size_t next_ = 0;
  // Rings by item: they hold two blocks.
  const RowMap::Bucket* homes_[2 * kBlock];
  Row* rows_[2 * kBlock];
};

}  // namespace tessera::ps

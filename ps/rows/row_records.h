#pragma once

#include <vector>

#include "absl/types/span.h"
#include "common/checkpoint/row_file_format.h"
#include "ps/rows/row_layout.h"

namespace tessera::ps {

// Writes rows one after another as a checkpoint's file has them: `records` has
// row_file::RecordBytes(layout.floats()) for each.
inline void StoreRecords(const RowLayout& layout, absl::Span<const Row* const> rows,
                         char* records) {
  std::vector<float> room;
  for (const Row* row : rows) {
    row_file::StoreRecord(row->key, row->frequency, row->last_step, layout.Floats(row, room),
                          records);
    records += row_file::RecordBytes(layout.floats());
  }
}

}  // namespace tessera::ps

#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/checkpoint/row_file_format.h"
#include "ps/rows/row_layout.h"
#include "ps/rows/row_store.h"

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

// Reads them again. `records` is a whole number of them, aligned for float32; the rows' floats lie
// there.
inline std::vector<RowRecord> ReadRecords(absl::string_view records, uint32_t floats_per_row) {
  const size_t record_bytes = row_file::RecordBytes(floats_per_row);
  std::vector<RowRecord> rows(records.size() / record_bytes);
  const char* record = records.data();
  for (RowRecord& row : rows) {
    row = {.key = row_file::Load<uint64_t>(record + row_file::kRecordKey),
           .last_step = row_file::Load<uint64_t>(record + row_file::kRecordLastStep),
           .frequency = row_file::Load<uint32_t>(record + row_file::kRecordFrequency),
           .floats = {reinterpret_cast<const float*>(record + row_file::kRecordValues),
                      floats_per_row}};
    record += record_bytes;
  }
  return rows;
}

}  // namespace tessera::ps

#include "worker/data/record_index.h"

#include "common/status_macros.h"
#include "worker/data/record_scanner.h"

namespace tessera::worker {

absl::StatusOr<RecordIndex> RecordIndex::Build(const ReadableFile& file, v1::DataFormat format,
                                               Place begin, uint64_t end) {
  RecordIndex index;
  index.end_ = end;
  RecordScanner scanner(file, format, begin.offset, end, begin.line);
  for (;;) {
    TESSERA_ASSIGN_OR_RETURN(const bool more, scanner.Next());
    if (!more) return index;
    if (index.records_ % kRecordsPerEntry == 0) {
      index.entries_.push_back({scanner.offset(), scanner.line()});
    }
    ++index.records_;
  }
}

RecordIndex::Place RecordIndex::Before(uint64_t record, uint64_t* skip) const {
  *skip = record % kRecordsPerEntry;
  return entries_[record / kRecordsPerEntry];
}

uint64_t RecordIndex::EndOf(uint64_t record) const {
  const uint64_t entry = (record + kRecordsPerEntry - 1) / kRecordsPerEntry;
  return entry < entries_.size() ? entries_[entry].offset : end_;
}

}  // namespace tessera::worker

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "tessera/v1/job.pb.h"

namespace tessera::worker {

// Where the records of a text file lie: the start of every kRecordsPerEntry-th one. Immutable.
class RecordIndex {
 public:
  static constexpr uint64_t kRecordsPerEntry = 256;

  // A place in the file.
  struct Place {
    uint64_t offset = 0;  // bytes
    uint64_t line = 1;
  };

  // Scans bytes [begin.offset, end) of the file.
  static absl::StatusOr<RecordIndex> Build(const ReadableFile& file, v1::DataFormat format,
                                           Place begin, uint64_t end);

  uint64_t records() const { return records_; }
  // The start of the last known record that is not behind `record`; *skip records lie between the
  // two. Requires record < records().
  Place Before(uint64_t record, uint64_t* skip) const;
  // The smallest known offset at which all records below `record` have ended.
  uint64_t EndOf(uint64_t record) const;

 private:
  uint64_t records_ = 0;
  uint64_t end_ = 0;
  std::vector<Place> entries_;
};

}  // namespace tessera::worker

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/checkpoint/row_file_format.h"
#include "common/file_system.h"
#include "common/ids.h"

namespace tessera {

// The rows of one table in one partition, complete and verified. Owns its bytes and is read-only,
// so any number of threads may read it.
class RowBlock {
 public:
  TableIndex table() const { return TableIndex(entry_.table); }
  PartitionId partition() const { return PartitionId(entry_.partition); }
  uint64_t rows() const { return entry_.rows; }
  uint32_t floats_per_row() const { return entry_.floats_per_row; }

  // i < rows(); keys ascend.
  uint64_t key(uint64_t i) const { return row_file::Load<uint64_t>(record(i)); }
  uint32_t frequency(uint64_t i) const {
    return row_file::Load<uint32_t>(record(i) + row_file::kRecordFrequency);
  }
  uint64_t last_step(uint64_t i) const {
    return row_file::Load<uint64_t>(record(i) + row_file::kRecordLastStep);
  }
  absl::Span<const float> values(uint64_t i) const {  // [floats_per_row]: embedding, then slots
    return {reinterpret_cast<const float*>(record(i) + row_file::kRecordValues),
            entry_.floats_per_row};
  }

 private:
  friend class RowFileReader;
  RowBlock(const row_file::IndexEntry& entry, std::unique_ptr<char[]> bytes)
      : entry_(entry), bytes_(std::move(bytes)) {}
  // Header and records are multiples of 4 bytes, so that the floats are aligned.
  const char* record(uint64_t i) const {
    return bytes_.get() + sizeof(row_file::BlockHeader) +
           i * row_file::RecordBytes(entry_.floats_per_row);
  }

  row_file::IndexEntry entry_;
  std::unique_ptr<char[]> bytes_;
};

// Reads one row file, block by block. Thread-safe. Never returns damaged data: DATA_LOSS names the
// file, the block, the offset and the fault. FAILED_PRECONDITION: this build does not read the
// format version.
class RowFileReader {
 public:
  // Verifies header, trailer and index.
  static absl::StatusOr<std::unique_ptr<RowFileReader>> Open(FileSystem& fs,
                                                             const std::string& path);

  uint32_t partition_count() const { return partition_count_; }
  // The blocks of the file, ascending by (table, partition); each has rows. Blocks with 0 floats
  // per row list removed keys and precede the rows of the same table and partition.
  absl::Span<const row_file::IndexEntry> blocks() const { return index_; }
  // The block of the table's rows in the partition or, with `gone`, of its removed keys. Null: the
  // file has none.
  const row_file::IndexEntry* Find(TableIndex table, PartitionId partition,
                                   bool gone = false) const;
  // Reads one of blocks() completely, into memory of its size, and verifies it.
  absl::StatusOr<RowBlock> Read(const row_file::IndexEntry& entry) const;

 private:
  RowFileReader(std::string path, std::unique_ptr<ReadableFile> file)
      : path_(std::move(path)), file_(std::move(file)) {}

  absl::Status Damaged(uint64_t offset, absl::string_view what) const;
  // Turns OUT_OF_RANGE, which means that the file got shorter, into DATA_LOSS.
  absl::Status ReadAt(uint64_t offset, absl::Span<char> out) const;
  absl::Status ReadHeader();
  absl::Status ReadIndex();

  const std::string path_;
  const std::unique_ptr<ReadableFile> file_;
  // Constant after Open.
  uint32_t partition_count_ = 0;
  std::vector<row_file::IndexEntry> index_;
};

}  // namespace tessera

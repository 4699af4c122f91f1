#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/checkpoint/background_file.h"
#include "common/checkpoint/checksum.h"
#include "common/checkpoint/row_file_format.h"
#include "common/file_system.h"
#include "common/ids.h"
#include "tessera/v1/checkpoint.pb.h"

namespace tessera {

// Writes one row file from its start, with buffers of 5 MiB and 40 bytes per block. Its own thread
// writes the bytes to the disk while the caller adds rows:
//
//   for each (table, partition) that has rows, in ascending order:
//     BeginBlock, AddRow for each of its rows in ascending order of keys, EndBlock
//   Finish
//
// INTERNAL: the caller broke that order. Disk errors have their path and code; after an error every
// call returns it. The destructor removes a file that was not finished. Not thread-safe; `fs` is
// borrowed and outlives the writer.
class RowFileWriter {
 public:
  static absl::StatusOr<std::unique_ptr<RowFileWriter>> Create(FileSystem& fs,
                                                               const std::string& path,
                                                               uint32_t partition_count,
                                                               uint32_t table_count);
  ~RowFileWriter();
  RowFileWriter(const RowFileWriter&) = delete;
  RowFileWriter& operator=(const RowFileWriter&) = delete;

  // `rows` rows follow, by AddRow and AddRecords. With 0 rows no block is written.
  absl::Status BeginBlock(TableIndex table, PartitionId partition, uint64_t rows,
                          uint32_t floats_per_row);
  absl::Status AddRow(uint64_t key, uint32_t frequency, uint64_t last_step,
                      absl::Span<const float> values);  // [floats_per_row]: embedding, then slots
  // Adds several rows, given as the bytes of their records (row_file_format.h).
  absl::Status AddRecords(absl::string_view records);
  absl::Status EndBlock();

  // Writes the index, syncs file and folder, closes. Returns the file's entry in the manifest: its
  // name within the folder, size, checksum, and rows by table.
  absl::StatusOr<v1::CheckpointFile> Finish();

 private:
  RowFileWriter(FileSystem& fs, std::string path, std::unique_ptr<WritableFile> file,
                uint32_t partition_count, uint32_t table_count);

  absl::Status Fail(absl::Status status);
  absl::Status Misuse(absl::string_view what);
  absl::Status Put(absl::string_view bytes);
  absl::Status Flush();

  FileSystem& fs_;
  const std::string path_;
  const uint32_t partition_count_;
  BackgroundFile file_;
  absl::Status failure_;
  bool finished_ = false;
  std::string buffer_;
  std::string record_;   // room for one record
  uint64_t offset_ = 0;  // of the next byte, counting buffered ones
  std::vector<row_file::IndexEntry> index_;
  std::vector<uint64_t> rows_by_table_;
  // The block that is open, or the last one.
  bool in_block_ = false;
  row_file::BlockHeader block_ = {};
  uint64_t rows_left_ = 0;
  uint64_t last_key_ = 0;
  Checksum64 block_checksum_;
};

}  // namespace tessera

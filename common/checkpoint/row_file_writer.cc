#include "common/checkpoint/row_file_writer.h"

#include <filesystem>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/partition.h"
#include "common/status_macros.h"

namespace tessera {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<RowFileWriter>> RowFileWriter::Create(FileSystem& fs,
                                                                     const std::string& path,
                                                                     uint32_t partition_count,
                                                                     uint32_t table_count) {
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, fs.Create(path));
  std::unique_ptr<RowFileWriter> writer(
      new RowFileWriter(fs, path, std::move(file), partition_count, table_count));
  row_file::Header header = {.magic = row_file::kHeaderMagic,
                             .format_version = row_file::kFormatVersion,
                             .partition_count = partition_count,
                             .reserved = 0,
                             .checksum = 0};
  absl::string_view bytes = row_file::BytesOf(header);
  bytes.remove_suffix(sizeof(header.checksum));
  header.checksum = Checksum64Of(bytes);
  TESSERA_RETURN_IF_ERROR(writer->Put(row_file::BytesOf(header)));
  return writer;
}

RowFileWriter::RowFileWriter(FileSystem& fs, std::string path, std::unique_ptr<WritableFile> file,
                             uint32_t partition_count, uint32_t table_count)
    : fs_(fs),
      path_(std::move(path)),
      partition_count_(partition_count),
      file_(std::move(file)),
      rows_by_table_(table_count) {
  buffer_.reserve(kBufferBytes + kBufferBytes / 4);
}

RowFileWriter::~RowFileWriter() {
  if (finished_) return;
  // Closes the file first: some file systems keep the space of an open file.
  file_.Abandon();
  fs_.Remove(path_).IgnoreError();
}

absl::Status RowFileWriter::BeginBlock(TableIndex table, PartitionId partition, uint64_t rows,
                                       uint32_t floats_per_row) {
  if (!failure_.ok()) return failure_;
  if (finished_ || in_block_) return Misuse("BeginBlock while a block is open or after Finish");
  if (table.value() >= rows_by_table_.size()) return Misuse("no such table");
  if (partition.value() >= partition_count_) return Misuse("no such partition");
  if (floats_per_row > row_file::kMaxFloatsPerRow) return Misuse("too many floats per row");
  if (!index_.empty() && std::tuple(table.value(), partition.value(), floats_per_row > 0) <=
                             std::tuple(index_.back().table, index_.back().partition,
                                        index_.back().floats_per_row > 0)) {
    return Misuse("blocks out of order");
  }
  in_block_ = true;
  rows_left_ = rows;
  block_ = {.magic = row_file::kBlockMagic,
            .table = table.value(),
            .partition = partition.value(),
            .floats_per_row = floats_per_row,
            .rows = rows,
            .record_bytes = rows * row_file::RecordBytes(floats_per_row)};
  if (rows == 0) return absl::OkStatus();
  index_.push_back({.table = block_.table,
                    .partition = block_.partition,
                    .floats_per_row = floats_per_row,
                    .reserved = 0,
                    .offset = offset_,
                    .bytes = block_.record_bytes + row_file::kBlockOverhead,
                    .rows = rows});
  if (floats_per_row > 0) rows_by_table_[table.value()] += rows;
  block_checksum_.Reset();
  block_checksum_.Add(row_file::BytesOf(block_));
  return Put(row_file::BytesOf(block_));
}

absl::Status RowFileWriter::AddRow(uint64_t key, uint32_t frequency, uint64_t last_step,
                                   absl::Span<const float> values) {
  if (!failure_.ok()) return failure_;
  if (values.size() != block_.floats_per_row) return Misuse("wrong number of floats");
  record_.resize(row_file::RecordBytes(block_.floats_per_row));
  row_file::StoreRecord(key, frequency, last_step, values, record_.data());
  return AddRecords(record_);
}

absl::Status RowFileWriter::AddRecords(absl::string_view records) {
  if (!failure_.ok()) return failure_;
  const size_t record_bytes = row_file::RecordBytes(block_.floats_per_row);
  const uint64_t rows = records.size() / record_bytes;
  if (rows * record_bytes != records.size()) return Misuse("half a record");
  if (!in_block_ || rows_left_ < rows) return Misuse("more rows than announced");
  bool first = rows_left_ == block_.rows;
  for (uint64_t i = 0; i < rows; ++i) {
    const uint64_t key =
        row_file::Load<uint64_t>(records.data() + i * record_bytes + row_file::kRecordKey);
    if (!first && key <= last_key_) return Misuse("keys out of order");
    if (PartitionOf(key, partition_count_).value() != block_.partition) {
      return Misuse("a key of another partition");
    }
    first = false;
    last_key_ = key;
  }
  rows_left_ -= rows;
  block_checksum_.Add(records);
  return Put(records);
}

absl::Status RowFileWriter::EndBlock() {
  if (!failure_.ok()) return failure_;
  if (!in_block_ || rows_left_ != 0) return Misuse("fewer rows than announced");
  in_block_ = false;
  if (block_.rows == 0) return absl::OkStatus();
  return Put(row_file::BytesOf(block_checksum_.Value()));
}

absl::StatusOr<v1::CheckpointFile> RowFileWriter::Finish() {
  if (!failure_.ok()) return failure_;
  if (finished_ || in_block_) return Misuse("Finish while a block is open or twice");
  row_file::Trailer trailer = {.index_offset = offset_,
                               .index_entries = index_.size(),
                               .checksum = 0,
                               .magic = row_file::kTrailerMagic};
  const absl::string_view index(reinterpret_cast<const char*>(index_.data()),
                                index_.size() * sizeof(row_file::IndexEntry));
  Checksum64 checksum;
  checksum.Add(index);
  checksum.Add(row_file::BytesOf(trailer.index_offset));
  checksum.Add(row_file::BytesOf(trailer.index_entries));
  trailer.checksum = checksum.Value();
  TESSERA_RETURN_IF_ERROR(Put(index));
  TESSERA_RETURN_IF_ERROR(Put(row_file::BytesOf(trailer)));
  TESSERA_RETURN_IF_ERROR(Flush());
  TESSERA_RETURN_IF_ERROR(Fail(file_.Finish()));
  const std::filesystem::path path(path_);
  const std::string folder = path.parent_path().string();
  TESSERA_RETURN_IF_ERROR(Fail(fs_.SyncFolder(folder.empty() ? "." : folder)));
  finished_ = true;

  v1::CheckpointFile out;
  out.set_name(path.filename().string());
  out.set_bytes(offset_);
  out.set_checksum(ChecksumText(file_.checksum()));
  for (uint64_t rows : rows_by_table_) out.add_rows(rows);
  return out;
}

absl::Status RowFileWriter::Fail(absl::Status status) {
  if (!status.ok()) failure_ = status;
  return status;
}

absl::Status RowFileWriter::Misuse(absl::string_view what) {
  return Fail(
      absl::InternalError(absl::StrCat(path_, ": row file written wrongly: ", what, " (table ",
                                       block_.table, ", partition ", block_.partition, ")")));
}

absl::Status RowFileWriter::Put(absl::string_view bytes) {
  buffer_.append(bytes.data(), bytes.size());
  offset_ += bytes.size();
  return buffer_.size() < kBufferBytes ? absl::OkStatus() : Flush();
}

absl::Status RowFileWriter::Flush() {
  const absl::Status status = file_.Append(buffer_);
  buffer_.reserve(kBufferBytes + kBufferBytes / 4);
  return Fail(status);
}

}  // namespace tessera

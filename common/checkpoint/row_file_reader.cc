#include "common/checkpoint/row_file_reader.h"

#include <algorithm>
#include <new>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checksum.h"
#include "common/partition.h"
#include "common/status_macros.h"

namespace tessera {
namespace {

template <typename T>
absl::Span<char> Bytes(T& value) {
  return {reinterpret_cast<char*>(&value), sizeof(T)};
}

// Removed keys come before the rows of the same table and partition.
auto Order(const row_file::IndexEntry& entry) {
  return std::tuple(entry.table, entry.partition, entry.floats_per_row > 0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RowFileReader>> RowFileReader::Open(FileSystem& fs,
                                                                   const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, fs.Open(path));
  std::unique_ptr<RowFileReader> reader(new RowFileReader(path, std::move(file)));
  TESSERA_RETURN_IF_ERROR(reader->ReadHeader());
  TESSERA_RETURN_IF_ERROR(reader->ReadIndex());
  return reader;
}

absl::Status RowFileReader::ReadHeader() {
  row_file::Header header;
  if (file_->Size() < sizeof(header) + sizeof(row_file::Trailer)) {
    return Damaged(file_->Size(), "the file is shorter than a header and a trailer");
  }
  TESSERA_RETURN_IF_ERROR(ReadAt(0, Bytes(header)));
  if (header.magic != row_file::kHeaderMagic) {
    return Damaged(0, "it does not begin as a row file");
  }
  absl::string_view checked = row_file::BytesOf(header);
  checked.remove_suffix(sizeof(header.checksum));
  if (header.checksum != Checksum64Of(checked)) return Damaged(0, "the header's checksum differs");
  if (header.format_version < row_file::kOldestFormatVersion ||
      header.format_version > row_file::kFormatVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, ": has row file format ", header.format_version, ", this build reads ",
                     row_file::kOldestFormatVersion, " to ", row_file::kFormatVersion,
                     "; use the version of tessera that wrote it"));
  }
  if (header.partition_count == 0) return Damaged(0, "the header says 0 partitions");
  partition_count_ = header.partition_count;
  return absl::OkStatus();
}

absl::Status RowFileReader::ReadIndex() {
  row_file::Trailer trailer;
  const uint64_t trailer_offset = file_->Size() - sizeof(trailer);
  TESSERA_RETURN_IF_ERROR(ReadAt(trailer_offset, Bytes(trailer)));
  if (trailer.magic != row_file::kTrailerMagic) {
    return Damaged(trailer_offset, "it does not end as a row file; is it cut off?");
  }
  const uint64_t entry_bytes = sizeof(row_file::IndexEntry);
  if (trailer.index_entries > trailer_offset / entry_bytes ||
      trailer.index_offset != trailer_offset - trailer.index_entries * entry_bytes) {
    return Damaged(trailer_offset, "the trailer does not fit the file's size");
  }
  index_.resize(trailer.index_entries);
  const absl::Span<char> bytes(reinterpret_cast<char*>(index_.data()), index_.size() * entry_bytes);
  TESSERA_RETURN_IF_ERROR(ReadAt(trailer.index_offset, bytes));
  Checksum64 checksum;
  checksum.Add(absl::string_view(bytes.data(), bytes.size()));
  checksum.Add(row_file::BytesOf(trailer.index_offset));
  checksum.Add(row_file::BytesOf(trailer.index_entries));
  if (checksum.Value() != trailer.checksum) {
    return Damaged(trailer.index_offset, "the index's checksum differs");
  }
  // The checksum holds, so the checks below fail only on a file that was written wrongly; but sizes
  // from outside are never used unchecked. Blocks fill the space between header and index.
  uint64_t offset = sizeof(row_file::Header);
  for (size_t i = 0; i < index_.size(); ++i) {
    const row_file::IndexEntry& entry = index_[i];
    if (entry.offset != offset || entry.bytes > trailer.index_offset - offset ||
        entry.bytes < row_file::kBlockOverhead || entry.rows == 0 ||
        entry.floats_per_row > row_file::kMaxFloatsPerRow || entry.partition >= partition_count_ ||
        entry.rows != (entry.bytes - row_file::kBlockOverhead) /
                          row_file::RecordBytes(entry.floats_per_row) ||
        entry.bytes - row_file::kBlockOverhead !=
            entry.rows * row_file::RecordBytes(entry.floats_per_row) ||
        (i > 0 && Order(index_[i - 1]) >= Order(entry))) {
      return Damaged(trailer.index_offset + i * entry_bytes, "an index entry contradicts the file");
    }
    offset += entry.bytes;
  }
  if (offset != trailer.index_offset) {
    return Damaged(offset, "there are bytes between the last block and the index");
  }
  return absl::OkStatus();
}

const row_file::IndexEntry* RowFileReader::Find(TableIndex table, PartitionId partition,
                                                bool gone) const {
  const auto want = std::tuple(table.value(), partition.value(), !gone);
  const auto it =
      std::lower_bound(index_.begin(), index_.end(), want,
                       [](const row_file::IndexEntry& a, const auto& b) { return Order(a) < b; });
  return it != index_.end() && Order(*it) == want ? &*it : nullptr;
}

absl::StatusOr<RowBlock> RowFileReader::Read(const row_file::IndexEntry& entry) const {
  RowBlock block(entry, std::unique_ptr<char[]>(new (std::nothrow) char[entry.bytes]));
  char* const bytes = block.bytes_.get();
  if (bytes == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(path_, ": no memory for the ", entry.bytes,
                                                     " bytes of the block of table ", entry.table,
                                                     ", partition ", entry.partition));
  }
  TESSERA_RETURN_IF_ERROR(ReadAt(entry.offset, absl::Span<char>(bytes, entry.bytes)));
  const auto damaged = [&](absl::string_view what) {
    return Damaged(entry.offset,
                   absl::StrCat("the block of table ", entry.table, ", partition ", entry.partition,
                                " (", entry.rows, " rows, ", entry.bytes, " bytes): ", what));
  };
  const uint64_t checked = entry.bytes - sizeof(uint64_t);
  if (row_file::Load<uint64_t>(bytes + checked) !=
      Checksum64Of(absl::string_view(bytes, checked))) {
    return damaged("its checksum differs");
  }
  const auto header = row_file::Load<row_file::BlockHeader>(bytes);
  if (header.magic != row_file::kBlockMagic || header.table != entry.table ||
      header.partition != entry.partition || header.floats_per_row != entry.floats_per_row ||
      header.rows != entry.rows || header.record_bytes != entry.bytes - row_file::kBlockOverhead) {
    return damaged("its header contradicts the index");
  }
  for (uint64_t i = 0; i < block.rows(); ++i) {
    if (i > 0 && block.key(i) <= block.key(i - 1)) return damaged("its keys do not ascend");
    if (PartitionOf(block.key(i), partition_count_) != block.partition()) {
      return damaged(absl::StrCat("key ", block.key(i), " belongs to another partition"));
    }
  }
  return block;
}

absl::Status RowFileReader::ReadAt(uint64_t offset, absl::Span<char> out) const {
  const absl::Status status = file_->Read(offset, out);
  return absl::IsOutOfRange(status) ? Damaged(offset, status.message()) : status;
}

absl::Status RowFileReader::Damaged(uint64_t offset, absl::string_view what) const {
  return absl::DataLossError(absl::StrCat(path_, ": damaged at byte ", offset, " of ",
                                          file_->Size(), ": ", what,
                                          "; go on from an earlier checkpoint"));
}

}  // namespace tessera

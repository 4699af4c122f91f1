#include "ps/jobs/sightings_file.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/background_file.h"
#include "common/checkpoint/checksum.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/row_file_format.h"
#include "common/status_macros.h"

namespace tessera::ps {
namespace {

// FORMAT.md; these structs are the bytes.
constexpr uint64_t kMagic = 0x3147495352535354;  // "TSSRSIG1"
constexpr uint32_t kFormatVersion = 1;
struct FileHeader {
  uint64_t magic;
  uint32_t format_version;
  uint32_t partition_count;
  uint64_t checksum;  // of the bytes before
};
static_assert(sizeof(FileHeader) == 24);

// Before the sightings of a block; after them stands a uint64 checksum of them.
struct BlockHeader {
  uint32_t table;  // kEnd: the file ends here
  uint32_t partition;
  uint64_t count;     // of sightings; at the end, of blocks
  uint64_t checksum;  // of the bytes before
};
static_assert(sizeof(BlockHeader) == 24);
constexpr uint32_t kEnd = std::numeric_limits<uint32_t>::max();

using row_file::BytesOf;

// Checksum of either header.
template <typename Header>
uint64_t ChecksumOf(const Header& header) {
  return Checksum64Of(BytesOf(header).substr(0, offsetof(Header, checksum)));
}

class Writer {
 public:
  Writer(std::string path, std::unique_ptr<WritableFile> file, uint32_t partition_count)
      : path_(std::move(path)), file_(std::move(file)) {
    FileHeader header = {.magic = kMagic,
                         .format_version = kFormatVersion,
                         .partition_count = partition_count,
                         .checksum = 0};
    header.checksum = ChecksumOf(header);
    absl::StrAppend(&bytes_, BytesOf(header));
  }

  absl::Status Add(uint32_t table, uint32_t partition, absl::Span<const Sighting> sightings) {
    if (sightings.empty()) return absl::OkStatus();
    ++blocks_;
    PutHeader(table, partition, sightings.size());
    const size_t begin = bytes_.size();
    AppendSightings(sightings, bytes_);
    const uint64_t checksum = Checksum64Of(absl::string_view(bytes_).substr(begin));
    absl::StrAppend(&bytes_, BytesOf(checksum));
    return Flush();
  }

  absl::StatusOr<v1::CheckpointFile> Finish(FileSystem& files) {
    PutHeader(kEnd, 0, blocks_);
    TESSERA_RETURN_IF_ERROR(Flush());
    TESSERA_RETURN_IF_ERROR(file_.Finish());
    const std::filesystem::path path(path_);
    TESSERA_RETURN_IF_ERROR(files.SyncFolder(path.parent_path().string()));
    v1::CheckpointFile out;
    out.set_name(path.filename().string());
    out.set_bytes(written_);
    out.set_checksum(ChecksumText(file_.checksum()));
    return out;
  }
  void Abandon() { file_.Abandon(); }

 private:
  void PutHeader(uint32_t table, uint32_t partition, uint64_t count) {
    BlockHeader header = {.table = table, .partition = partition, .count = count, .checksum = 0};
    header.checksum = ChecksumOf(header);
    absl::StrAppend(&bytes_, BytesOf(header));
  }
  absl::Status Flush() {
    written_ += bytes_.size();
    return file_.Append(bytes_);
  }

  const std::string path_;
  BackgroundFile file_;
  std::string bytes_;  // not appended yet
  uint64_t written_ = 0;
  uint64_t blocks_ = 0;
};

absl::Status WriteTo(Writer& writer, const PartitionSet& partitions, const Tables& tables,
                     KeepGoing keep_going) {
  for (uint32_t t = 0; t < tables.size(); ++t) {
    if (!tables[t]->counts_sightings()) continue;
    for (const PartitionId partition : partitions.owned()) {
      TESSERA_RETURN_IF_ERROR(keep_going());
      TESSERA_RETURN_IF_ERROR(
          writer.Add(t, partition.value(), tables[t]->TakeCutSightings(partition)));
    }
  }
  return absl::OkStatus();
}

class Reader {
 public:
  Reader(std::string path, std::unique_ptr<ReadableFile> file)
      : path_(std::move(path)), file_(std::move(file)) {}

  absl::StatusOr<uint32_t> PartitionCount() {
    FileHeader header;
    TESSERA_RETURN_IF_ERROR(Read(MutableBytesOf(header)));
    if (header.magic != kMagic || header.checksum != ChecksumOf(header)) {
      return Damaged("its header is not one of sightings, or its checksum differs");
    }
    if (header.format_version != kFormatVersion) {
      return absl::FailedPreconditionError(
          absl::StrCat(path_, ": has format ", header.format_version, ", this build reads ",
                       kFormatVersion, "; use the version of tessera that wrote it"));
    }
    return header.partition_count;
  }

  // Reads the header of the next block, which the caller then skips or reads; false: there is none.
  absl::StatusOr<bool> Next(BlockHeader& block) {
    TESSERA_RETURN_IF_ERROR(Read(MutableBytesOf(block)));
    if (block.checksum != ChecksumOf(block)) {
      return Damaged("the checksum of a block's header differs");
    }
    if (block.table != kEnd) {
      ++blocks_;
      return true;
    }
    if (block.count != blocks_ || at_ != file_->Size()) {
      return Damaged("its end is not where it should be");
    }
    return false;
  }
  void Skip(const BlockHeader& block) { at_ += block.count * kSightingBytes + sizeof(uint64_t); }
  absl::StatusOr<std::vector<Sighting>> ReadSightings(const BlockHeader& block) {
    std::string bytes(block.count * kSightingBytes, '\0');
    uint64_t checksum = 0;
    TESSERA_RETURN_IF_ERROR(Read(absl::MakeSpan(bytes)));
    TESSERA_RETURN_IF_ERROR(Read(MutableBytesOf(checksum)));
    if (checksum != Checksum64Of(bytes)) {
      return Damaged(absl::StrCat("the checksum of table ", block.table, ", partition ",
                                  block.partition, " differs"));
    }
    return ParseSightings(bytes);
  }

 private:
  template <typename T>
  static absl::Span<char> MutableBytesOf(T& value) {
    return {reinterpret_cast<char*>(&value), sizeof(T)};
  }
  absl::Status Damaged(absl::string_view what) const {
    return absl::DataLossError(absl::StrCat(path_, ": damaged at byte ", at_, ": ", what,
                                            "; go on from an earlier checkpoint"));
  }
  absl::Status Read(absl::Span<char> to) {
    const absl::Status status = file_->Read(at_, to);
    if (absl::IsOutOfRange(status)) return Damaged("it is cut off");
    at_ += to.size();
    return status;
  }

  const std::string path_;
  const std::unique_ptr<ReadableFile> file_;
  uint64_t at_ = 0;
  uint64_t blocks_ = 0;
};

}  // namespace

void AppendSightings(absl::Span<const Sighting> sightings, std::string& bytes) {
  size_t at = bytes.size();
  bytes.resize(at + sightings.size() * kSightingBytes);
  for (const Sighting& sighting : sightings) {
    std::memcpy(&bytes[at], &sighting.fingerprint, sizeof(sighting.fingerprint));
    bytes[at + sizeof(sighting.fingerprint)] = static_cast<char>(sighting.count);
    at += kSightingBytes;
  }
}

absl::StatusOr<std::vector<Sighting>> ParseSightings(absl::string_view bytes) {
  if (bytes.size() % kSightingBytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(bytes.size(), " bytes of sightings, expected a multiple of ", kSightingBytes));
  }
  std::vector<Sighting> sightings(bytes.size() / kSightingBytes);
  const char* at = bytes.data();
  for (Sighting& sighting : sightings) {
    std::memcpy(&sighting.fingerprint, at, sizeof(sighting.fingerprint));
    sighting.count = static_cast<uint8_t>(at[sizeof(sighting.fingerprint)]);
    if (sighting.count == 0) return absl::InvalidArgumentError("sightings of a key: 0");
    at += kSightingBytes;
  }
  return sightings;
}

absl::StatusOr<std::optional<v1::CheckpointFile>> WriteSightings(
    FileSystem& files, const std::string& folder, const std::string& name,
    const PartitionSet& partitions, const Tables& tables, KeepGoing keep_going) {
  if (std::none_of(tables.begin(), tables.end(),
                   [](const auto& table) { return table->counts_sightings(); })) {
    return std::nullopt;
  }
  const std::string path = absl::StrCat(folder, "/", name);
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, files.Create(path));
  Writer writer(path, std::move(file), partitions.partition_count());
  absl::Status status = WriteTo(writer, partitions, tables, keep_going);
  if (status.ok()) {
    absl::StatusOr<v1::CheckpointFile> written = writer.Finish(files);
    if (written.ok()) return *std::move(written);
    status = written.status();
  } else {
    writer.Abandon();
  }
  files.Remove(path).IgnoreError();
  return status;
}

absl::Status ReadSightings(FileSystem& files, const std::string& path,
                           const PartitionSet& partitions, const std::vector<Table*>& tables,
                           KeepGoing keep_going) {
  absl::StatusOr<std::unique_ptr<ReadableFile>> file = files.Open(path);
  if (absl::IsNotFound(file.status())) return MissingFile(files, path);
  TESSERA_RETURN_IF_ERROR(file.status());
  Reader reader(path, *std::move(file));
  TESSERA_ASSIGN_OR_RETURN(const uint32_t partition_count, reader.PartitionCount());
  if (partition_count != partitions.partition_count()) return absl::OkStatus();
  BlockHeader block;
  while (true) {
    TESSERA_RETURN_IF_ERROR(keep_going());
    TESSERA_ASSIGN_OR_RETURN(const bool more, reader.Next(block));
    if (!more) return absl::OkStatus();
    Table* const table = block.table < tables.size() ? tables[block.table] : nullptr;
    const bool wanted = table != nullptr && block.partition < partition_count &&
                        partitions.IndexOf(PartitionId(block.partition)) != PartitionSet::kNotOwned;
    if (!wanted) {
      reader.Skip(block);
      continue;
    }
    TESSERA_ASSIGN_OR_RETURN(const std::vector<Sighting> sightings, reader.ReadSightings(block));
    table->AddSightings(PartitionId(block.partition), sightings);
  }
}

}  // namespace tessera::ps

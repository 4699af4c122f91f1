#include "ps/push_log/push_log_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"

namespace tessera::ps {

using push_log::Padded;
using push_log::RecordHeader;

std::string PushLogReader::Path(const PushLog::Segment& segment) const {
  return absl::StrCat(folder_, "/", push_log::SegmentName(segment.number));
}

absl::StatusOr<std::optional<RecordHeader>> PushLogReader::ReadHeader(const ReadableFile& file,
                                                                      uint64_t offset) {
  RecordHeader header;
  if (file.Size() - offset < sizeof(header)) return std::optional<RecordHeader>();
  TESSERA_RETURN_IF_ERROR(
      file.Read(offset, absl::MakeSpan(reinterpret_cast<char*>(&header), sizeof(header))));
  const bool sound = header.magic == push_log::kMagic &&
                     header.header_checksum == push_log::HeaderChecksum(header) &&
                     header.text_bytes <= push_log::kMaxTextBytes &&
                     header.bulk_bytes <= push_log::kMaxBulkBytes;
  return sound ? std::optional<RecordHeader>(header) : std::nullopt;
}

absl::Status PushLogReader::CheckVersion(const ReadableFile& file, const std::string& path) {
  RecordHeader header;
  if (file.Size() < sizeof(header)) return absl::OkStatus();
  TESSERA_RETURN_IF_ERROR(
      file.Read(0, absl::MakeSpan(reinterpret_cast<char*>(&header), sizeof(header))));
  if (!push_log::IsOfAnotherVersion(header)) return absl::OkStatus();
  const char versions[] = {push_log::VersionOf(header.magic),
                           push_log::VersionOf(push_log::kMagic)};
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": is a push log of version ", absl::string_view(&versions[0], 1),
                   ", this build reads ", absl::string_view(&versions[1], 1),
                   "; use the version of tessera that wrote it"));
}

absl::StatusOr<std::optional<PushLogReader::Record>> PushLogReader::ReadPayload(
    const ReadableFile& file, uint64_t offset, const RecordHeader& header) {
  const uint64_t text_bytes = Padded(header.text_bytes);
  const uint64_t at = offset + sizeof(header);
  if (file.Size() - at < text_bytes + header.bulk_bytes) return std::optional<Record>();
  Record record{.kind = header.kind,
                .number = header.number,
                .text = std::string(text_bytes, '\0'),
                .bulk = wire::Buffer(header.bulk_bytes),
                .where = ""};
  TESSERA_RETURN_IF_ERROR(file.Read(at, absl::MakeSpan(record.text)));
  const absl::Span<char> bulk(record.bulk.data(), record.bulk.size());
  TESSERA_RETURN_IF_ERROR(file.Read(at + text_bytes, bulk));
  Checksum64 checksum;
  checksum.Add(record.text);
  checksum.Add(absl::string_view(bulk.data(), bulk.size()));
  if (checksum.Value() != header.payload_checksum) return std::optional<Record>();
  record.text.resize(header.text_bytes);
  return std::optional<Record>(std::move(record));
}

absl::StatusOr<std::optional<PushLogReader::Record>> PushLogReader::ReadRecord(
    const ReadableFile& file, uint64_t offset) {
  TESSERA_ASSIGN_OR_RETURN(const std::optional<RecordHeader> header, ReadHeader(file, offset));
  if (!header.has_value()) return std::optional<Record>();
  return ReadPayload(file, offset, *header);
}

absl::StatusOr<std::unique_ptr<PushLogReader>> PushLogReader::Open(
    FileSystem& files, const std::string& folder, std::optional<absl::string_view> cut) {
  if (!cut.has_value()) {
    const auto is_first = [](const PushLog::Segment& segment) {
      return segment.first == 1 && !segment.cut.has_value();
    };
    return OpenLast(files, folder, is_first, "with rows from memory");
  }
  return OpenLast(
      files, folder, [&](const PushLog::Segment& segment) { return segment.cut == cut; },
      cut->empty() ? "at the start of the job" : absl::StrCat("at the cut of checkpoint ", *cut));
}

absl::StatusOr<std::unique_ptr<PushLogReader>> PushLogReader::OpenAt(FileSystem& files,
                                                                     const std::string& folder,
                                                                     uint64_t record) {
  return OpenLast(
      files, folder, [&](const PushLog::Segment& segment) { return segment.first <= record; },
      absl::StrCat("at or before record ", record));
}

absl::StatusOr<std::unique_ptr<PushLogReader>> PushLogReader::OpenLast(
    FileSystem& files, const std::string& folder,
    absl::FunctionRef<bool(const PushLog::Segment&)> begins, absl::string_view where) {
  std::unique_ptr<PushLogReader> reader(new PushLogReader(&files, folder));
  absl::StatusOr<std::vector<std::string>> names = files.List(folder);
  if (absl::IsNotFound(names.status())) {
    return absl::FailedPreconditionError(absl::StrCat(folder, ": there is no push log here"));
  }
  TESSERA_RETURN_IF_ERROR(names.status());
  std::optional<size_t> begin;
  std::string torn;  // a segment that was being begun
  const auto damaged = [](const std::string& path) {
    return absl::DataLossError(
        absl::StrCat(path, ": the head of this segment of a push log is damaged"));
  };
  for (const std::string& name : *names) {
    TESSERA_ASSIGN_OR_RETURN(std::optional<Begin> found, reader->ReadBegin(name));
    if (!found.has_value()) continue;
    if (!torn.empty()) return damaged(torn);  // it is not the last
    if (!found->sound) {
      const std::string path = reader->Path(found->segment);
      TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, files.Open(path));
      TESSERA_ASSIGN_OR_RETURN(const bool goes_on, GoesOn(*file, 1, 1));
      if (goes_on) return damaged(path);
      // Nothing in it counts, and the next one takes its place.
      torn = path;
      reader->bytes_behind_ = file->Size();
      continue;
    }
    if (begins(found->segment)) {
      begin = reader->segments_.size();
      reader->head_ = std::move(found->head);
    }
    reader->segments_.push_back(std::move(found->segment));
  }
  if (!begin.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat(folder, ": the push log has no segment that begins ", where));
  }
  TESSERA_RETURN_IF_ERROR(reader->OpenSegment(*begin));
  return reader;
}

absl::StatusOr<std::optional<PushLogReader::Begin>> PushLogReader::ReadBegin(
    const std::string& name) const {
  Begin begin;
  absl::string_view digits = name;
  if (!absl::ConsumeSuffix(&digits, push_log::kSuffix) ||
      !absl::SimpleAtoi(digits, &begin.segment.number)) {
    return std::optional<Begin>();
  }
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file,
                           files_->Open(Path(begin.segment)));
  begin.segment.bytes = file->Size();
  TESSERA_RETURN_IF_ERROR(CheckVersion(*file, Path(begin.segment)));
  TESSERA_ASSIGN_OR_RETURN(const std::optional<Record> first, ReadRecord(*file, 0));
  begin.sound = first.has_value() && first->kind == push_log::Kind::kHead &&
                begin.head.ParseFromString(first->text);
  if (!begin.sound) return std::optional<Begin>(std::move(begin));
  begin.segment.first = first->number;
  if (begin.head.has_cut()) begin.segment.cut = begin.head.cut();
  return std::optional<Begin>(std::move(begin));
}

absl::Status PushLogReader::OpenSegment(size_t index) {
  index_ = index;
  TESSERA_ASSIGN_OR_RETURN(file_, files_->Open(Path(segments_[index])));
  offset_ = 0;
  next_record_ = segments_[index].first;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<PushLogReader::Record>> PushLogReader::Next() {
  while (!ended_) {
    const bool last = index_ + 1 == segments_.size();
    if (!last && next_record_ == segments_[index_ + 1].first) {
      // Whatever stands behind this was not acknowledged.
      TESSERA_RETURN_IF_ERROR(OpenSegment(index_ + 1));
      continue;
    }
    TESSERA_ASSIGN_OR_RETURN(std::optional<Record> record, ReadRecord(*file_, offset_));
    if (!record.has_value() || record->number != next_record_) {
      TESSERA_RETURN_IF_ERROR(AtUnreadable());
      continue;
    }
    record->where = absl::StrCat(Path(segments_[index_]), ", record ", record->number);
    offset_ += sizeof(RecordHeader) + Padded(record->text.size()) + record->bulk.size();
    ++next_record_;
    if (record->kind == push_log::Kind::kHead) continue;
    return record;
  }
  return std::optional<Record>();
}

absl::StatusOr<PushLogReader::Record> PushLogReader::NextOf(const PushLog::End& end) {
  // Part of a record at the end of a segment, left by an error, must not be taken for one of the
  // next.
  if (segments_.back().number < end.segment) TESSERA_RETURN_IF_ERROR(LookAgain());
  for (const bool again : {true, false}) {
    while (index_ + 1 < segments_.size() && next_record_ == segments_[index_ + 1].first) {
      TESSERA_RETURN_IF_ERROR(OpenSegment(index_ + 1));
    }
    TESSERA_ASSIGN_OR_RETURN(std::optional<Record> record, ReadRecord(*file_, offset_));
    if (record.has_value() && record->number == next_record_) {
      record->where = absl::StrCat(Path(segments_[index_]), ", record ", record->number);
      offset_ += sizeof(RecordHeader) + Padded(record->text.size()) + record->bulk.size();
      ++next_record_;
      return *std::move(record);
    }
    if (again) TESSERA_RETURN_IF_ERROR(LookAgain());
  }
  return absl::DataLossError(absl::StrCat(Path(segments_[index_]), ": record ", next_record_,
                                          ", at byte ", offset_, " of ", file_->Size(),
                                          ", is damaged or missing, and the log goes on to record ",
                                          end.next_record - 1));
}

absl::Status PushLogReader::LookAgain() {
  TESSERA_ASSIGN_OR_RETURN(file_, files_->Open(Path(segments_[index_])));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, files_->List(folder_));
  for (const std::string& name : names) {
    if (name <= push_log::SegmentName(segments_.back().number)) continue;
    TESSERA_ASSIGN_OR_RETURN(std::optional<Begin> found, ReadBegin(name));
    if (!found.has_value()) continue;
    if (!found->sound) break;  // the segment is being begun
    segments_.push_back(std::move(found->segment));
  }
  return absl::OkStatus();
}

absl::Status PushLogReader::AtUnreadable() {
  const std::string path = Path(segments_[index_]);
  const auto damaged = [&](absl::string_view after) {
    return absl::DataLossError(absl::StrCat(path, ": record ", next_record_, ", at byte ", offset_,
                                            " of ", file_->Size(), ", is damaged or missing, and ",
                                            after));
  };
  if (index_ + 1 < segments_.size()) {
    return damaged(
        absl::StrCat("the next segment begins with record ", segments_[index_ + 1].first));
  }
  TESSERA_ASSIGN_OR_RETURN(const bool goes_on, GoesOn(*file_, offset_ + 1, next_record_ + 1));
  if (goes_on) return damaged("there are sound ones behind it");
  bytes_behind_ = file_->Size() - offset_;
  ended_ = true;
  return absl::OkStatus();
}

absl::StatusOr<bool> PushLogReader::GoesOn(const ReadableFile& file, uint64_t offset,
                                           uint64_t least) {
  constexpr uint64_t kPiece = 1 << 20;
  std::string piece;
  while (offset + sizeof(RecordHeader) <= file.Size()) {
    piece.resize(std::min(kPiece, file.Size() - offset));
    TESSERA_RETURN_IF_ERROR(file.Read(offset, absl::MakeSpan(piece)));
    for (size_t i = 0; i + sizeof(RecordHeader) <= piece.size(); ++i) {
      if (std::memcmp(piece.data() + i, &push_log::kMagic, sizeof(push_log::kMagic)) != 0) continue;
      TESSERA_ASSIGN_OR_RETURN(const std::optional<RecordHeader> header,
                               ReadHeader(file, offset + i));
      if (header.has_value() && header->number >= least) return true;
    }
    // Pieces overlap, so that none cuts a header in two.
    offset += piece.size() - sizeof(RecordHeader) + 1;
  }
  return false;
}

}  // namespace tessera::ps

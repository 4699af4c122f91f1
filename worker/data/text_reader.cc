#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/data/reader.h"
#include "worker/data/record_index.h"
#include "worker/data/record_parser.h"
#include "worker/data/record_scanner.h"
#include "worker/data/unpack.h"

namespace tessera::worker {
namespace {

// The offset of the text, behind a UTF-8 byte order mark if there is one. Refuses what is clearly
// not text.
absl::StatusOr<uint64_t> CheckText(const ReadableFile& file, uint64_t bytes) {
  constexpr uint64_t kLooked = 4096;
  std::string start(static_cast<size_t>(std::min(kLooked, bytes)), '\0');
  TESSERA_RETURN_IF_ERROR(file.Read(0, absl::MakeSpan(start)));
  const std::pair<const char*, const char*> kinds[] = {
      {"\x1f\x8b", "gzip data: name it .gz"},
      {"\x28\xb5\x2f\xfd", "zstd data: name it .zst"},
      {"\xff\xfe", "UTF-16 text: convert it to UTF-8"},
      {"\xfe\xff", "UTF-16 text: convert it to UTF-8"},
      {"PAR1", "a Parquet file"}};
  for (const auto& [magic, kind] : kinds) {
    if (absl::StartsWith(start, magic)) {
      return absl::InvalidArgumentError(absl::StrCat("is ", kind, "; expected a text file"));
    }
  }
  if (const size_t zero = start.find('\0'); zero != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", 1 + std::count(start.begin(), start.begin() + zero, '\n'),
                     ": has a zero byte at byte ", zero, "; is this a binary file? Expected text"));
  }
  return absl::StartsWith(start, "\xef\xbb\xbf") ? 3 : 0;
}

// Refuses a file that has no line feed within the length of a record and carriage returns within
// its text: its lines end as they did on old Macintoshes, and all of it would be one record.
absl::Status CheckLineEnds(const ReadableFile& file, v1::DataFormat format, uint64_t bytes) {
  constexpr uint64_t kBlock = 64 << 10;
  std::string block;
  bool in_quotes = false;
  uint64_t returns = 0;
  for (uint64_t at = 0; at < std::min(bytes, kMaxRecordBytes); at += block.size()) {
    block.resize(static_cast<size_t>(std::min(kBlock, bytes - at)));
    TESSERA_RETURN_IF_ERROR(file.Read(at, absl::MakeSpan(block)));
    if (absl::StrContains(block, '\n')) return absl::OkStatus();
    for (size_t i = 0; i < block.size(); ++i) {
      if (block[i] == '"' && format == v1::CSV) in_quotes = !in_quotes;
      const bool last = at + i + 1 == bytes;  // may be half of a line end
      if (block[i] == '\r' && !in_quotes && !last) ++returns;
    }
  }
  if (returns == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "has line ends by CR only, so that all of it is one line; expected LF or CR and LF: convert "
      "it, as by tr '\\r' '\\n' < OLD > NEW");
}

class TextReader final : public Reader {
 public:
  TextReader(FileSystem& fs, const Schema& schema, const TextFile& file)
      : fs_(fs), schema_(schema), file_(file) {}

  absl::Status Open() {
    TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, fs_.Open(file_.path));
    file_bytes_ = text_bytes_ = file->Size();
    if (IsPacked(file_.path)) {
      TESSERA_ASSIGN_OR_RETURN(UnpackedFile unpacked,
                               Unpack(fs_, *file, file_.path, file_.scratch));
      unpacked_ = std::move(unpacked.file);
      text_bytes_ = unpacked.bytes;
    }
    return WithContext(Scan(unpacked_ != nullptr ? *unpacked_ : *file), file_.name);
  }

  uint64_t Count() const override { return index_.records(); }
  uint64_t FileBytes() const override { return file_bytes_; }

  absl::StatusOr<ParsedRecords> Read(uint64_t begin, uint64_t end) const override {
    ParsedRecords records;
    ClearBatch(schema_.sparse.size(), &records.batch);
    if (begin >= end) return records;
    if (end > Count()) {
      return absl::FailedPreconditionError(
          absl::StrCat(file_.name, ": has ", Count(), " records, expected at least ", end));
    }
    std::unique_ptr<ReadableFile> opened;
    if (unpacked_ == nullptr) {
      TESSERA_ASSIGN_OR_RETURN(opened, fs_.Open(file_.path));
      TESSERA_RETURN_IF_ERROR(CheckFileBytes(file_.name, opened->Size(), file_bytes_));
    }
    TESSERA_RETURN_IF_ERROR(WithContext(
        ReadFrom(unpacked_ != nullptr ? *unpacked_ : *opened, begin, end, &records), file_.name));
    return records;
  }

 private:
  absl::StatusOr<std::unique_ptr<RecordParser>> NewParser() const {
    return schema_.format == v1::LIBSVM ? NewLibsvmParser(schema_)
                                        : NewDelimitedParser(schema_, fields_);
  }

  absl::Status Scan(const ReadableFile& text) {
    if (text_bytes_ == 0) return absl::InvalidArgumentError("is empty; expected records");
    RecordIndex::Place begin;
    TESSERA_ASSIGN_OR_RETURN(begin.offset, CheckText(text, text_bytes_));
    TESSERA_RETURN_IF_ERROR(CheckLineEnds(text, schema_.format, text_bytes_));
    if (schema_.header) {
      TESSERA_RETURN_IF_ERROR(ScanHeader(text, &begin));
    } else {
      for (size_t c = 0; c < schema_.columns.size(); ++c) fields_.push_back(static_cast<int>(c));
    }
    TESSERA_ASSIGN_OR_RETURN(index_, RecordIndex::Build(text, schema_.format, begin, text_bytes_));
    if (index_.records() > 0) return NewParser().status();
    return absl::InvalidArgumentError(schema_.header ? "has a header and no records"
                                                     : "has no records, only blank lines");
  }

  // Sets fields_, and *begin to what follows the header.
  absl::Status ScanHeader(const ReadableFile& text, RecordIndex::Place* begin) {
    RecordScanner scanner(text, schema_.format, begin->offset, text_bytes_, begin->line);
    TESSERA_ASSIGN_OR_RETURN(const bool found, scanner.Next());
    if (!found) return absl::InvalidArgumentError("has no header, only blank lines");
    const std::string line = absl::StrCat("line ", scanner.line());
    auto names = SplitHeader(schema_.format, scanner.text());
    if (!names.ok()) return WithContext(names.status(), line);
    auto fields = schema_.MatchHeader(*names);
    if (!fields.ok()) return WithContext(fields.status(), line);
    fields_ = *std::move(fields);
    TESSERA_ASSIGN_OR_RETURN(const bool more, scanner.Next());
    *begin = more ? RecordIndex::Place{scanner.offset(), scanner.line()}
                  : RecordIndex::Place{text_bytes_, 1};
    return absl::OkStatus();
  }

  absl::Status ReadFrom(const ReadableFile& text, uint64_t begin, uint64_t end,
                        ParsedRecords* out) const {
    TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<RecordParser> parser, NewParser());
    uint64_t skip = 0;
    const RecordIndex::Place place = index_.Before(begin, &skip);
    RecordScanner scanner(text, schema_.format, place.offset, index_.EndOf(end), place.line);
    for (uint64_t record = begin - skip; record < end; ++record) {
      TESSERA_ASSIGN_OR_RETURN(const bool more, scanner.Next());
      if (!more) {
        return absl::FailedPreconditionError(
            absl::StrCat("ends before record ", record, " of ", Count(),
                         "; the file has changed since its records were counted"));
      }
      if (record < begin) continue;
      const absl::Status status = parser->Parse(scanner.text(), &out->batch);
      if (status.ok()) {
        if (out->batch.size == 1) ReserveAsTheFirst(end - record, &out->batch);
        continue;
      }
      const bool header = record == 0 && !schema_.header && schema_.format != v1::LIBSVM;
      out->bad.push_back(
          {record,
           absl::StrCat(file_.name, ":", scanner.line(), ": ", status.message(),
                        header ? " (if this line is a header, set data.header: true)" : "")});
    }
    return absl::OkStatus();
  }

  // Makes room for `rows` rows like the first; a column with many ids gets room for a few only.
  static void ReserveAsTheFirst(uint64_t rows, Batch* batch) {
    constexpr size_t kFewIds = 4;
    batch->labels.reserve(rows * batch->labels.size());
    batch->dense.reserve(rows * batch->dense.size());
    for (SparseColumn& column : batch->sparse) {
      column.offsets.reserve(rows + 1);
      column.keys.reserve(rows * std::min(column.keys.size(), kFewIds));
    }
  }

  FileSystem& fs_;
  const Schema& schema_;
  const TextFile file_;
  // Constant after Open().
  uint64_t file_bytes_ = 0;
  uint64_t text_bytes_ = 0;
  std::unique_ptr<ReadableFile> unpacked_;  // null: not packed; each Read opens the file
  std::vector<int> fields_;
  RecordIndex index_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Reader>> OpenTextReader(FileSystem& fs, const Schema& schema,
                                                       const TextFile& file) {
  auto reader = std::make_unique<TextReader>(fs, schema, file);
  TESSERA_RETURN_IF_ERROR(reader->Open());
  return reader;
}

absl::Status CheckFileBytes(const std::string& name, uint64_t bytes, uint64_t counted_bytes) {
  if (bytes == counted_bytes) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      name, ": has ", bytes, " bytes, had ", counted_bytes,
      " when its records were counted; start the job again, or, if nobody has changed it, see "
      "that all workers' --data-root have the same files"));
}

}  // namespace tessera::worker

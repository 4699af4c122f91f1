#include "worker/data/record_scanner.h"

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace tessera::worker {
namespace {

constexpr size_t kBlockBytes = 256 << 10;

const char* Find(const char* begin, const char* end, char c) {
  return static_cast<const char*>(std::memchr(begin, c, static_cast<size_t>(end - begin)));
}

// The end of a CSV record that starts at `p`: its line feed outside quotes; null: there is none
// before `end`. Per RFC 4180, section 2, a quote opens only at the start of a field. Sets
// *open_quote to a quote that does not close before `end`, or null.
const char* FindCsvEnd(const char* p, const char* end, const char** open_quote) {
  *open_quote = nullptr;
  const char* line_end = Find(p, end, '\n');
  if (Find(p, line_end != nullptr ? line_end : end, '"') == nullptr) return line_end;
  bool field_start = true;
  while (p < end) {
    const char c = *p++;
    if (c == '"' && field_start) {
      *open_quote = p - 1;
      const char* quote = Find(p, end, '"');
      while (quote != nullptr && quote + 1 < end && quote[1] == '"') {
        quote = Find(quote + 2, end, '"');
      }
      if (quote == nullptr) return nullptr;
      *open_quote = nullptr;
      p = quote + 1;
      field_start = false;
    } else if (c == '\n') {
      return p - 1;
    } else {
      field_start = c == ',';
    }
  }
  return nullptr;
}

// The error of a quote that is not closed in a file's last record, [begin, end), which begins in
// line `line`. A quote that swallows lines must fail the file: as a bad record all these lines
// would count as one.
absl::Status NeverClosed(const char* begin, const char* quote, const char* end, uint64_t line) {
  while (end > quote && (end[-1] == '\n' || end[-1] == '\r')) --end;
  const auto lines = std::count(quote, end, '\n');
  if (lines == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "line ", line + static_cast<uint64_t>(std::count(begin, quote, '\n')),
      ": a quote that opens here is never closed: ", lines, lines == 1 ? " line" : " lines",
      " after it would be lost; close it, or if it is part of the text, put the field in quotes ",
      "and double the quote"));
}

bool IsBlank(v1::DataFormat format, absl::string_view text) {
  if (text.empty()) return true;
  if (format != v1::LIBSVM) return false;
  const size_t i = text.find_first_not_of(" \t");
  return i == absl::string_view::npos || text[i] == '#';
}

}  // namespace

RecordScanner::RecordScanner(const ReadableFile& file, v1::DataFormat format, uint64_t begin,
                             uint64_t end, uint64_t line)
    : file_(file), format_(format), end_(end), file_offset_(begin), next_line_(line) {}

absl::Status RecordScanner::Refill() {
  std::memmove(buffer_.data(), buffer_.data() + position_, filled_ - position_);
  file_offset_ += position_;
  filled_ -= position_;
  position_ = 0;
  const uint64_t read_from = file_offset_ + filled_;
  const size_t bytes = static_cast<size_t>(std::min<uint64_t>(kBlockBytes, end_ - read_from));
  if (buffer_.size() < filled_ + bytes) buffer_.resize(filled_ + bytes);
  const absl::Status status =
      file_.Read(read_from, absl::MakeSpan(buffer_).subspan(filled_, bytes));
  if (absl::IsOutOfRange(status)) {
    return absl::FailedPreconditionError(
        absl::StrCat(status.message(), "; the file has changed while it was read"));
  }
  TESSERA_RETURN_IF_ERROR(status);
  filled_ += bytes;
  return absl::OkStatus();
}

absl::StatusOr<bool> RecordScanner::Next() {
  for (;;) {
    const char* begin = buffer_.data() + position_;
    const char* end = buffer_.data() + filled_;
    const char* open_quote = nullptr;
    const char* stop = nullptr;
    if (begin != end) {
      stop = format_ == v1::CSV ? FindCsvEnd(begin, end, &open_quote) : Find(begin, end, '\n');
    }
    const bool at_end = file_offset_ + filled_ >= end_;
    const uint64_t length = static_cast<uint64_t>((stop != nullptr ? stop : end) - begin);
    if (length > kMaxRecordBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "line ", next_line_, ": the record that starts here is longer than ",
          kMaxRecordBytes >> 20, " MiB, the most that a record may have; is ",
          format_ == v1::CSV ? "a quote never closed, or is " : "", "this not a text file?"));
    }
    if (stop == nullptr && !at_end) {
      TESSERA_RETURN_IF_ERROR(Refill());
      continue;
    }
    if (stop == nullptr) {
      if (begin == end) return false;
      if (open_quote != nullptr) {
        TESSERA_RETURN_IF_ERROR(NeverClosed(begin, open_quote, end, next_line_));
      }
      stop = end;
    }
    text_ = absl::string_view(begin, length);
    offset_ = file_offset_ + position_;
    line_ = next_line_;
    position_ = static_cast<size_t>(std::min(stop + 1, end) - buffer_.data());
    next_line_ += 1;
    if (format_ == v1::CSV && Find(begin, stop, '\n') != nullptr) {
      next_line_ += static_cast<uint64_t>(std::count(begin, stop, '\n'));
    }
    if (!text_.empty() && text_.back() == '\r') text_.remove_suffix(1);
    if (!IsBlank(format_, text_)) return true;
  }
}

}  // namespace tessera::worker

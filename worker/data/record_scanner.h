#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/file_system.h"
#include "tessera/v1/job.pb.h"

namespace tessera::worker {

// A longer record is an error, so that a quote that is never closed does not swallow the file.
inline constexpr uint64_t kMaxRecordBytes = 1 << 20;

// Cuts a text file into records: lines that end with LF or CRLF; the last line need not. In CSV a
// field that starts with a quote may hold line breaks. Blank lines are no records, nor are lines
// that start with '#' in LIBSVM. Holds at most kMaxRecordBytes and a block of the file in memory.
// Not thread-safe.
class RecordScanner {
 public:
  // Scans bytes [begin, end) of `file`; begin is the start of a record, in line `line` (from 1).
  // `file` is borrowed and outlives the scanner.
  RecordScanner(const ReadableFile& file, v1::DataFormat format, uint64_t begin, uint64_t end,
                uint64_t line);

  // Goes to the next record; false at the end.
  //   INVALID_ARGUMENT     it is too long, or a quote in it is never closed and takes further lines
  //                        with it
  //   FAILED_PRECONDITION  the file has become shorter
  absl::StatusOr<bool> Next();

  // The record that Next() went to; the view is valid until the next call.
  absl::string_view text() const { return text_; }  // without its line end
  uint64_t offset() const { return offset_; }       // where its first byte is
  uint64_t line() const { return line_; }           // where its first byte is

 private:
  absl::Status Refill();

  const ReadableFile& file_;
  const v1::DataFormat format_;
  const uint64_t end_;

  std::string buffer_;
  size_t position_ = 0;   // index in buffer_ of the first byte not yet handed out
  size_t filled_ = 0;     // bytes of buffer_ that are from the file
  uint64_t file_offset_;  // offset of buffer_[0] in the file
  uint64_t next_line_;
  absl::string_view text_;
  uint64_t offset_ = 0;
  uint64_t line_ = 0;
};

}  // namespace tessera::worker

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "common/wire/buffer.h"
#include "ps/push_log/push_log.h"
#include "ps/push_log/record.h"
#include "tessera/v1/push_log.pb.h"

namespace tessera::ps {

// Reads a push log from the cut of a checkpoint on, record by record. Not thread-safe.
class PushLogReader {
 public:
  struct Record {
    push_log::Kind kind = push_log::Kind::kPush;
    uint64_t number = 0;
    std::string text;
    wire::Buffer bulk;
    std::string where;  // "FILE, record N", for messages
  };

  // Begins at the last segment with this cut; nullopt: at the first segment of all, which has no
  // cut, of a log whose rows were in no checkpoint. FAILED_PRECONDITION: there is no such segment,
  // no log, or one of another version. DATA_LOSS: damage before the end, the file named.
  static absl::StatusOr<std::unique_ptr<PushLogReader>> Open(FileSystem& files,
                                                             const std::string& folder,
                                                             std::optional<absl::string_view> cut);
  // Begins at the last segment that has the record of this number, or those before it: numbers go
  // on from one segment to the next. Errors as Open.
  static absl::StatusOr<std::unique_ptr<PushLogReader>> OpenAt(FileSystem& files,
                                                               const std::string& folder,
                                                               uint64_t record);

  const v1::PushLogHead& head() const { return head_; }
  // The next record, heads left out; nullopt at the end. A record that was being written when its
  // process died is no part of the log. DATA_LOSS: a record is damaged or missing, though the log
  // goes on after it. Throws std::bad_alloc.
  absl::StatusOr<std::optional<Record>> Next();
  // The next record, heads included, of a log that is still written; `end` is its PushLog's.
  // Requires next_record() < end.next_record.
  absl::StatusOr<Record> NextOf(const PushLog::End& end);

  // For PushLog::Continue, once Next has given nullopt.
  std::vector<PushLog::Segment> segments() const { return segments_; }
  uint64_t next_record() const { return next_record_; }
  // Bytes of the last file after the last record: of a record that was being written, and of what
  // was in the file before.
  uint64_t bytes_behind() const { return bytes_behind_; }

 private:
  PushLogReader(FileSystem* files, std::string folder)
      : files_(files), folder_(std::move(folder)) {}
  // `where`: how the segment begins, for a message.
  static absl::StatusOr<std::unique_ptr<PushLogReader>> OpenLast(
      FileSystem& files, const std::string& folder,
      absl::FunctionRef<bool(const PushLog::Segment&)> begins, absl::string_view where);
  std::string Path(const PushLog::Segment& segment) const;
  // The header at `offset` of the file; nullopt: no whole record begins there.
  static absl::StatusOr<std::optional<push_log::RecordHeader>> ReadHeader(const ReadableFile& file,
                                                                          uint64_t offset);
  // FAILED_PRECONDITION: the file begins with a sound header of another version.
  static absl::Status CheckVersion(const ReadableFile& file, const std::string& path);
  // Text and bulk behind a header; nullopt: they are not what was written.
  static absl::StatusOr<std::optional<Record>> ReadPayload(const ReadableFile& file,
                                                           uint64_t offset,
                                                           const push_log::RecordHeader& header);
  static absl::StatusOr<std::optional<Record>> ReadRecord(const ReadableFile& file,
                                                          uint64_t offset);
  absl::Status OpenSegment(size_t index);
  // Finds what has been written since: segments, and the length of the one it is at.
  absl::Status LookAgain();
  // How the segment in a file of the folder begins; nullopt: the file is no segment.
  struct Begin {
    PushLog::Segment segment;
    bool sound = false;  // the head could be read
    v1::PushLogHead head;
  };
  absl::StatusOr<std::optional<Begin>> ReadBegin(const std::string& name) const;
  // The record at offset_ cannot be read: the end of the log, or of its segment, or damage.
  absl::Status AtUnreadable();
  // Whether a sound header with a number of at least `least` lies behind `offset`.
  static absl::StatusOr<bool> GoesOn(const ReadableFile& file, uint64_t offset, uint64_t least);

  FileSystem* const files_;
  const std::string folder_;
  v1::PushLogHead head_;
  std::vector<PushLog::Segment> segments_;  // from the first of the folder on
  size_t index_ = 0;                        // in segments_
  std::unique_ptr<ReadableFile> file_;
  uint64_t offset_ = 0;
  uint64_t next_record_ = 0;
  uint64_t bytes_behind_ = 0;
  bool ended_ = false;
};

}  // namespace tessera::ps

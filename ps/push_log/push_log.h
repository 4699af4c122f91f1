#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/file_system.h"
#include "ps/push_log/record.h"
#include "tessera/v1/push_log.pb.h"

namespace tessera::ps {

// The log of one job on one ps: all that changes its rows, written before it is acknowledged.
// Segments are files of a folder. One begins at every cut of a checkpoint, so that those before the
// cut can be dropped when the checkpoint is committed. The file of a dropped segment is kept, and
// the next is written over it: a page that the file already has costs half as much as a new one.
// Thread-safe.
class PushLog {
 public:
  struct Options {
    FileSystem* files = nullptr;  // borrowed
    std::string folder;
    bool fsync = false;      // Sync makes records durable
    uint64_t max_bytes = 0;  // of all files; 0: as much as the disk has
    // Of the disk, if it says what it has: no record takes this, nor twice what a segment's head
    // has, if that is more. So a segment can begin, and with it a checkpoint that makes room.
    uint64_t kept_free = 256 << 10;
    // How many logs share the disk, this one among them: it counts itself. Each has its part of
    // what is free. Null: it is alone. Borrowed.
    std::atomic<uint32_t>* logs = nullptr;
    // Called, from a half on, whenever another twentieth of the room is taken. It must return at
    // once and call nothing of the log. Null: nobody asks.
    std::function<void()> on_fuller = nullptr;
  };
  struct Segment {
    uint64_t number = 0;
    std::optional<std::string> cut;
    uint64_t bytes = 0;
    uint64_t first = 0;      // number of its head
    uint64_t old_bytes = 0;  // size of the file that it is written over
    bool ours = false;       // this log has begun it
  };

  // A new log whose first segment begins with `head`; removes whatever was in the folder.
  static absl::StatusOr<std::unique_ptr<PushLog>> Create(Options options,
                                                         const v1::PushLogHead& head);
  // Goes on after what a PushLogReader has read, in a new segment. `head` has no cut.
  static absl::StatusOr<std::unique_ptr<PushLog>> Continue(Options options,
                                                           std::vector<Segment> segments,
                                                           uint64_t next_record,
                                                           const v1::PushLogHead& head);

  ~PushLog() {
    if (options_.logs != nullptr) --*options_.logs;
  }
  PushLog(const PushLog&) = delete;
  PushLog& operator=(const PushLog&) = delete;

  // The operating system has the record when this returns. RESOURCE_EXHAUSTED (disk or max_bytes)
  // and UNAVAILABLE: the record is not in the log, and may be appended again later.
  absl::Status Append(push_log::Kind kind, absl::string_view text, absl::string_view bulk)
      ABSL_LOCKS_EXCLUDED(mu_);
  // If the options ask for fsync, all that was appended before is on the disk when this returns.
  // UNAVAILABLE: nobody knows what is on the disk; the log is broken and says so from then on.
  absl::Status Sync() ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until the disk has all but the last `behind` bytes of the segment (WritableFile::Drain),
  // so that the system has no cause to delay a write later. Errors as Sync's.
  absl::Status Drain(uint64_t behind) ABSL_LOCKS_EXCLUDED(mu_);
  // Begins a segment. After an error the log is as before.
  absl::Status Cut(const v1::PushLogHead& head) ABSL_LOCKS_EXCLUDED(mu_);
  // Drops the segments before the last one that begins at this cut, but not those with records from
  // `keep_from` on; does nothing if no segment begins there. False: some of them are left.
  bool Forget(absl::string_view cut, uint64_t keep_from = std::numeric_limits<uint64_t>::max())
      ABSL_LOCKS_EXCLUDED(forget_mu_, mu_);
  // The number of the first record of the last segment that begins at this cut; 0: there is none.
  uint64_t FirstOf(absl::string_view cut) const ABSL_LOCKS_EXCLUDED(mu_);
  // From here on Append and Sync are refused with `reason`.
  void Close(absl::Status reason) ABSL_LOCKS_EXCLUDED(mu_);

  // Bytes of all records.
  uint64_t bytes() const ABSL_LOCKS_EXCLUDED(known_mu_);
  // The part of its room that is taken, at most 1: the room is max_bytes, or what the files take
  // and its part of what the disk has free, where that is less. Of the files what is written over
  // with the next records is not taken. Of the disk it knows what was so a MiB of records ago at
  // most. 0: the room is not known.
  float share() const ABSL_LOCKS_EXCLUDED(known_mu_);
  // Where the next record goes; the files have all records before it.
  struct End {
    uint64_t segment = 0;
    uint64_t next_record = 0;
  };
  End end() const ABSL_LOCKS_EXCLUDED(known_mu_);
  const std::string& folder() const { return options_.folder; }

 private:
  explicit PushLog(Options options) : options_(std::move(options)) {
    if (options_.logs != nullptr) ++*options_.logs;
  }
  absl::Status Begin(const v1::PushLogHead& head) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Write(WritableFile& file, push_log::RecordHeader header, absl::string_view text,
                     absl::string_view bulk, Segment& segment) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string PathOf(uint64_t segment) const;
  std::string SparePath() const { return absl::StrCat(options_.folder, "/", push_log::kSpare); }
  // Whether the last segment may grow by a record of so many bytes. RESOURCE_EXHAUSTED: max_bytes
  // or the disk.
  absl::Status CheckRoom(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether the file of a dropped segment may serve the next one.
  bool MayServe(const Segment& segment) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Drops the first segment and keeps its file for the next one.
  absl::Status KeepAsSpare() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status RemoveSpare() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Hands the status on; an error breaks the log.
  absl::Status Synced(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Updates what end(), bytes() and share() answer.
  void Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) ABSL_LOCKS_EXCLUDED(known_mu_);
  // Calls on_fuller if it is time to.
  void TellIfFuller() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) ABSL_LOCKS_EXCLUDED(known_mu_);
  // Asks the disk how much room there is.
  void FindRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Bytes of all files, and of all records.
  uint64_t FileBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t AllRecordBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;

  absl::Mutex forget_mu_ ABSL_ACQUIRED_BEFORE(mu_);  // nobody else shortens segments_
  mutable absl::Mutex mu_;                           // held while the disk is written to
  absl::Status closed_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<WritableFile> file_ ABSL_GUARDED_BY(mu_);
  bool spoilt_ ABSL_GUARDED_BY(mu_) = false;            // file_ ends with part of a record
  std::vector<Segment> segments_ ABSL_GUARDED_BY(mu_);  // the last one is being written
  uint64_t spare_bytes_ ABSL_GUARDED_BY(mu_) = 0;       // 0: there is no spare file
  // The head for a segment that follows a spoilt one. Its watermarks are those of an earlier
  // moment, which does no harm: readers begin at a cut.
  v1::PushLogHead head_ ABSL_GUARDED_BY(mu_);
  uint64_t next_record_ ABSL_GUARDED_BY(mu_) = 1;
  // Numbers of records.
  uint64_t synced_ ABSL_GUARDED_BY(mu_) = 0;
  bool syncing_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t room_ ABSL_GUARDED_BY(mu_) = 0;           // of the files; 0: not known
  uint64_t disk_free_ ABSL_GUARDED_BY(mu_) = 0;      // bytes, when FindRoom looked
  uint64_t room_found_at_ ABSL_GUARDED_BY(mu_) = 0;  // bytes of records when FindRoom looked
  int told_twentieths_ ABSL_GUARDED_BY(mu_) = 0;

  // Never held while anybody waits for the disk: heartbeats ask.
  mutable absl::Mutex known_mu_ ABSL_ACQUIRED_AFTER(mu_);
  End end_ ABSL_GUARDED_BY(known_mu_);
  uint64_t bytes_ ABSL_GUARDED_BY(known_mu_) = 0;
  float share_ ABSL_GUARDED_BY(known_mu_) = 0;
};

}  // namespace tessera::ps

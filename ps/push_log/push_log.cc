#include "ps/push_log/push_log.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/failpoint.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace tessera::ps {

using push_log::Kind;
using push_log::Padded;
using push_log::RecordHeader;

namespace {

constexpr uint64_t kBetweenFinds = 1 << 20;  // bytes of records, between two looks for their room
// It looks before each record where its disk had less than this at the last look.
constexpr uint64_t kLittle = 8 << 20;

absl::string_view Zeros(uint64_t bytes) { return absl::string_view("\0\0\0\0\0\0\0", bytes); }

RecordHeader HeaderOf(Kind kind, absl::string_view text, absl::string_view bulk) {
  Checksum64 checksum;
  checksum.Add(text);
  checksum.Add(Zeros(Padded(text.size()) - text.size()));
  checksum.Add(bulk);
  return {.magic = push_log::kMagic,
          .number = 0,
          .kind = kind,
          .text_bytes = static_cast<uint32_t>(text.size()),
          .bulk_bytes = bulk.size(),
          .payload_checksum = checksum.Value(),
          .header_checksum = 0};
}

uint64_t RecordBytes(absl::string_view text, absl::string_view bulk) {
  return sizeof(RecordHeader) + Padded(text.size()) + bulk.size();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PushLog>> PushLog::Create(Options options,
                                                         const v1::PushLogHead& head) {
  TESSERA_RETURN_IF_ERROR(options.files->Remove(options.folder));
  return Continue(std::move(options), {}, 1, head);
}

absl::StatusOr<std::unique_ptr<PushLog>> PushLog::Continue(Options options,
                                                           std::vector<Segment> segments,
                                                           uint64_t next_record,
                                                           const v1::PushLogHead& head) {
  TESSERA_RETURN_IF_ERROR(options.files->CreateFolder(options.folder));
  if (options.fsync) {
    // The folders of the generation, of the job and of all logs, each of which may be new.
    std::filesystem::path above(options.folder);
    for (int level = 0; level < 3 && above != "."; ++level) {
      above = above.parent_path();
      if (above.empty()) above = ".";
      TESSERA_RETURN_IF_ERROR(options.files->SyncFolder(above.string()));
    }
    // Records that were read may be with the operating system alone. What follows relies on them: a
    // repeat of a push that is logged is answered at once.
    for (const Segment& segment : segments) {
      TESSERA_RETURN_IF_ERROR(options.files->SyncFile(
          absl::StrCat(options.folder, "/", push_log::SegmentName(segment.number))));
    }
  }
  std::unique_ptr<PushLog> log(new PushLog(std::move(options)));
  absl::MutexLock lock(&log->mu_);
  TESSERA_RETURN_IF_ERROR(log->RemoveSpare());
  log->segments_ = std::move(segments);
  log->next_record_ = next_record;
  TESSERA_RETURN_IF_ERROR(log->Begin(head));
  return log;
}

absl::Status PushLog::Begin(const v1::PushLogHead& head) {
  Segment segment;
  segment.number = segments_.empty() ? 1 : segments_.back().number + 1;
  segment.first = next_record_;
  segment.ours = true;
  segment.old_bytes = std::exchange(spare_bytes_, 0);
  if (head.has_cut()) segment.cut = head.cut();
  const std::string path = PathOf(segment.number);
  const auto begin = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) -> absl::Status {
    const bool over_spare = segment.old_bytes > 0;
    // The file must not come back under its old name with what is written now.
    if (over_spare && options_.fsync) {
      TESSERA_RETURN_IF_ERROR(options_.files->SyncFolder(options_.folder));
    }
    TESSERA_ASSIGN_OR_RETURN(
        std::shared_ptr<WritableFile> file,
        over_spare ? options_.files->Overwrite(SparePath()) : options_.files->Create(path));
    TESSERA_RETURN_IF_ERROR(Failpoint("ps.push_log.segment"));
    const std::string text = head.SerializeAsString();
    TESSERA_RETURN_IF_ERROR(Write(*file, HeaderOf(Kind::kHead, text, ""), text, "", segment));
    if (options_.fsync) {
      // The segment before ends here: its records must be on disk before those that follow.
      if (file_ != nullptr) TESSERA_RETURN_IF_ERROR(Synced(file_->Sync()));
      TESSERA_RETURN_IF_ERROR(file->Sync());
    }
    // Renamed only now: a file with the name of a segment always has its head.
    if (over_spare) TESSERA_RETURN_IF_ERROR(options_.files->Rename(SparePath(), path));
    if (options_.fsync) {
      TESSERA_RETURN_IF_ERROR(options_.files->SyncFolder(options_.folder));
      synced_ = next_record_;
    }
    PassFailpoint("ps.push_log.segment_begun");
    file_ = std::move(file);
    return absl::OkStatus();
  };
  if (const absl::Status begun = begin(); !begun.ok()) {
    options_.files->Remove(path).IgnoreError();
    options_.files->Remove(SparePath()).IgnoreError();
    return begun;
  }
  ++next_record_;
  spoilt_ = false;
  segments_.push_back(std::move(segment));
  head_ = head;
  head_.clear_cut();
  FindRoom();
  Publish();
  return absl::OkStatus();
}

absl::Status PushLog::Write(WritableFile& file, RecordHeader header, absl::string_view text,
                            absl::string_view bulk, Segment& segment) {
  header.number = next_record_;
  header.header_checksum = push_log::HeaderChecksum(header);
  std::string first(reinterpret_cast<const char*>(&header), sizeof(header));
  absl::StrAppend(&first, text, Zeros(Padded(text.size()) - text.size()));
  segment.bytes += first.size() + bulk.size();
  TESSERA_RETURN_IF_ERROR(file.Append(first));
  if (bulk.empty()) return absl::OkStatus();
  PassFailpoint("ps.push_log.half_written");
  return file.Append(bulk);
}

absl::Status PushLog::CheckRoom(uint64_t bytes) {
  const Segment& last = segments_.back();
  const uint64_t longer = last.bytes + bytes;
  const uint64_t more = longer - std::min(longer, std::max(last.bytes, last.old_bytes));
  if (options_.max_bytes != 0 && FileBytes() + more > options_.max_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        options_.folder, ": the push log takes ", FileBytes(), " of ", options_.max_bytes,
        " bytes; it shrinks with every checkpoint: cut them more often (checkpoint.every_steps, "
        "every_minutes), or allow more with --log-bytes"));
  }
  if (more == 0 || disk_free_ - std::min(disk_free_, kBetweenFinds) > kLittle + more) {
    return absl::OkStatus();
  }
  FindRoom();
  const uint64_t kept = std::max<uint64_t>(options_.kept_free, 2 * head_.ByteSizeLong());
  if (disk_free_ >= more + kept) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(options_.folder, ": No space left for a record of ", bytes,
                   " bytes: the disk has ", disk_free_, ", of which the push log keeps ", kept,
                   " for the segment that begins with the next checkpoint; make room there"));
}

absl::Status PushLog::Append(Kind kind, absl::string_view text, absl::string_view bulk) {
  const RecordHeader header = HeaderOf(kind, text, bulk);
  absl::MutexLock lock(&mu_);
  TESSERA_RETURN_IF_ERROR(closed_);
  absl::Status room = CheckRoom(RecordBytes(text, bulk));
  if (!room.ok() && spare_bytes_ > 0) {
    TESSERA_RETURN_IF_ERROR(RemoveSpare());
    room = CheckRoom(RecordBytes(text, bulk));
  }
  if (!room.ok()) {
    Publish();
    return room;
  }
  // Part of a record that an error has left ends its segment; the numbers show that nothing is
  // missing.
  if (spoilt_) TESSERA_RETURN_IF_ERROR(Begin(v1::PushLogHead(head_)));
  TESSERA_RETURN_IF_ERROR(Failpoint("ps.push_log.append"));
  if (const absl::Status written = Write(*file_, header, text, bulk, segments_.back());
      !written.ok()) {
    spoilt_ = true;
    FindRoom();
    Publish();
    return written;
  }
  PassFailpoint("ps.push_log.appended");
  ++next_record_;
  Publish();
  TellIfFuller();
  return absl::OkStatus();
}

absl::Status PushLog::Drain(uint64_t behind) {
  absl::MutexLock lock(&mu_);
  TESSERA_RETURN_IF_ERROR(closed_);
  return Synced(file_->Drain(behind));
}

absl::Status PushLog::Sync() {
  if (!options_.fsync) return absl::OkStatus();
  mu_.Lock();
  const uint64_t wanted = next_record_ - 1;
  // One caller syncs for all that have appended so far.
  while (synced_ < wanted && closed_.ok()) {
    if (syncing_) {
      const auto ended = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !syncing_; };
      mu_.Await(absl::Condition(&ended));
      continue;
    }
    syncing_ = true;
    const uint64_t covers = next_record_ - 1;
    const std::shared_ptr<WritableFile> file = file_;
    mu_.Unlock();
    absl::Status synced = Failpoint("ps.push_log.sync");
    if (synced.ok()) synced = file->Sync();
    PassFailpoint("ps.push_log.synced");
    mu_.Lock();
    syncing_ = false;
    if (Synced(synced).ok()) synced_ = std::max(synced_, covers);
  }
  const absl::Status status = synced_ >= wanted ? absl::OkStatus() : closed_;
  mu_.Unlock();
  return status;
}

absl::Status PushLog::Cut(const v1::PushLogHead& head) {
  absl::MutexLock lock(&mu_);
  TESSERA_RETURN_IF_ERROR(closed_);
  return Begin(head);
}

absl::Status PushLog::Synced(const absl::Status& status) {
  if (status.ok() || !closed_.ok()) return status;
  closed_ = absl::UnavailableError(absl::StrCat(
      "the push log is broken, its disk may have lost what was written: ", status.message()));
  return closed_;
}

bool PushLog::Forget(absl::string_view cut, uint64_t keep_from) {
  absl::MutexLock forgetting(&forget_mu_);
  absl::Status gone;
  while (gone.ok()) {
    // A file is removed without mu_: the larger it is the longer that takes, and nothing could be
    // appended meanwhile.
    std::string path;
    {
      absl::MutexLock lock(&mu_);
      const auto from = std::find_if(segments_.rbegin(), segments_.rend(),
                                     [cut](const Segment& segment) { return segment.cut == cut; });
      if (from == segments_.rend() || segments_.front().number >= from->number) return true;
      if (segments_[1].first > keep_from) return false;
      PassFailpoint("ps.push_log.forget");
      if (!MayServe(segments_.front())) {
        path = PathOf(segments_.front().number);
      } else if (std::exchange(spare_bytes_, 0) > 0) {
        path = SparePath();  // before another file gets its name
      } else {
        gone = KeepAsSpare();
        continue;
      }
    }
    gone = options_.files->Remove(path);
    absl::MutexLock lock(&mu_);
    if (gone.ok() && path != SparePath()) segments_.erase(segments_.begin());
    Publish();
  }
  SPDLOG_WARN("a segment of a push log stays behind: {}", std::string(gone.message()));
  return false;
}

uint64_t PushLog::FirstOf(absl::string_view cut) const {
  absl::MutexLock lock(&mu_);
  const auto from = std::find_if(segments_.rbegin(), segments_.rend(),
                                 [cut](const Segment& segment) { return segment.cut == cut; });
  return from == segments_.rend() ? 0 : from->first;
}

void PushLog::Close(absl::Status reason) {
  absl::MutexLock lock(&mu_);
  if (closed_.ok()) closed_ = std::move(reason);
}

std::string PushLog::PathOf(uint64_t segment) const {
  return absl::StrCat(options_.folder, "/", push_log::SegmentName(segment));
}

bool PushLog::MayServe(const Segment& segment) {
  // In a recovered log the records behind a torn one are unknown: their numbers may be given once
  // more.
  const bool safe = segment.ours;
  const bool used = segment.old_bytes <= 2 * segment.bytes;
  FindRoom();
  const bool has_room = room_ == 0 || 2 * FileBytes() <= room_;
  return safe && used && has_room;
}

absl::Status PushLog::KeepAsSpare() {
  const Segment& segment = segments_.front();
  TESSERA_RETURN_IF_ERROR(options_.files->Rename(PathOf(segment.number), SparePath()));
  spare_bytes_ = std::max(segment.bytes, segment.old_bytes);
  segments_.erase(segments_.begin());
  Publish();
  return absl::OkStatus();
}

absl::Status PushLog::RemoveSpare() {
  spare_bytes_ = 0;
  return options_.files->Remove(SparePath());
}

uint64_t PushLog::FileBytes() const {
  uint64_t bytes = spare_bytes_;
  for (const Segment& segment : segments_) bytes += std::max(segment.bytes, segment.old_bytes);
  return bytes;
}

uint64_t PushLog::AllRecordBytes() const {
  uint64_t bytes = 0;
  for (const Segment& segment : segments_) bytes += segment.bytes;
  return bytes;
}

void PushLog::Publish() {
  const uint64_t bytes = AllRecordBytes();
  if (bytes < room_found_at_ || bytes - room_found_at_ >= kBetweenFinds) FindRoom();
  // The spare, and what the last segment has not yet written over, are for the next records.
  const Segment& last = segments_.back();
  const uint64_t taken =
      FileBytes() - spare_bytes_ - std::max(last.bytes, last.old_bytes) + last.bytes;
  absl::MutexLock lock(&known_mu_);
  end_ = {.segment = last.number, .next_record = next_record_};
  bytes_ = bytes;
  share_ = room_ == 0 ? 0
                      : std::min(1.0f, static_cast<float>(static_cast<double>(taken) /
                                                          static_cast<double>(room_)));
}

void PushLog::TellIfFuller() {
  const int twentieths = static_cast<int>(20 * share());
  const int told = std::exchange(told_twentieths_, twentieths);
  if (options_.on_fuller && twentieths > told && twentieths >= 10) options_.on_fuller();
}

void PushLog::FindRoom() {
  room_found_at_ = AllRecordBytes();
  const uint64_t files = FileBytes();
  disk_free_ = options_.files->FreeBytes(options_.folder);
  room_ = options_.max_bytes;
  if (disk_free_ == FileSystem::kUnknownBytes) return;
  const uint64_t free = disk_free_ / (options_.logs == nullptr ? 1 : options_.logs->load());
  room_ = room_ == 0 ? files + free : std::min(room_, files + free);
}

PushLog::End PushLog::end() const {
  absl::MutexLock lock(&known_mu_);
  return end_;
}

float PushLog::share() const {
  absl::MutexLock lock(&known_mu_);
  return share_;
}

uint64_t PushLog::bytes() const {
  absl::MutexLock lock(&known_mu_);
  return bytes_;
}

}  // namespace tessera::ps

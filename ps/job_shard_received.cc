// JobShard: the log of rows that are received from other ps. Until a checkpoint has them, it leads
// back to them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "ps/job_shard.h"
#include "ps/push_log/folders.h"

namespace tessera::ps {
namespace {

// The disk is kept up with, so that it is not busy with this when training stands.
constexpr uint64_t kDrainBytes = 32 << 20;
// Of what waits for the end of the barrier.
constexpr uint64_t kMaxUnwrittenBytes = 128 << 20;

}  // namespace

void JobShard::LogReceived() {
  if (request_.push_log() <= v1::RecoverySpec::OFF || options_.log_root.empty()) return;
  PushLog::Options options = LogOptions();
  options.folder =
      push_log::ReceivedFolder(options_.log_root, request_.job_id(), request_.generation());
  options.drain_bytes = kDrainBytes;
  v1::PushLogHead head;
  *head.mutable_opened() = request_;
  absl::MutexLock lock(&received_mu_);
  auto log = PushLog::Create(std::move(options), head);
  if (!log.ok()) return ReceivedNotLogged(log.status());
  received_ = *std::move(log);
}

absl::StatusOr<uint64_t> JobShard::Receive(const v1::RowChunk& chunk, bool training_stands) {
  TESSERA_ASSIGN_OR_RETURN(const uint64_t rows, ReceiveChunk(chunk));
  absl::MutexLock lock(&received_mu_);
  if (received_ == nullptr) return rows;
  std::string record = chunk.SerializeAsString();
  const bool waits = training_stands && request_.push_log() == v1::RecoverySpec::ASYNC &&
                     unwritten_bytes_ + record.size() <= kMaxUnwrittenBytes;
  if (waits || !unwritten_.empty()) {
    unwritten_bytes_ += record.size();
    unwritten_.push_back(std::move(record));
    if (!waits) WriteUnwritten();
    return rows;
  }
  AppendReceived(record);
  return rows;
}

void JobShard::AppendReceived(const std::string& record) {
  const absl::Status logged = received_->Append(push_log::Kind::kRows, record, "");
  if (!logged.ok()) ReceivedNotLogged(logged);
}

void JobShard::WriteUnwritten() {
  for (const std::string& record : std::exchange(unwritten_, {})) {
    if (received_ != nullptr) AppendReceived(record);
  }
  unwritten_bytes_ = 0;
}

std::optional<uint64_t> JobShard::SyncReceived() {
  absl::MutexLock lock(&received_mu_);
  if (received_ == nullptr) return std::nullopt;
  if (const absl::Status synced = received_->Sync(); !synced.ok()) {
    ReceivedNotLogged(synced);
    return std::nullopt;
  }
  return received_->end().next_record + unwritten_.size();
}

void JobShard::TakeReceived(JobShard& from) {
  absl::MutexLock from_lock(&from.received_mu_);
  absl::MutexLock lock(&received_mu_);
  received_ = std::move(from.received_);
  unwritten_ = std::exchange(from.unwritten_, {});
  unwritten_bytes_ = std::exchange(from.unwritten_bytes_, 0);
}

void JobShard::EndReceived() {
  absl::MutexLock lock(&received_mu_);
  if (received_ == nullptr) return;
  WriteUnwritten();
  received_ = nullptr;
}

void JobShard::ReceivedNotLogged(const absl::Status& why) {
  SPDLOG_WARN(
      "job {}: a ps that is lost before the next checkpoint takes the job back to the last one: no "
      "log of the rows that come from other ps: {}",
      request_.job_id(), std::string(why.message()));
  RemoveReceived();
}

void JobShard::ForgetReceived() {
  absl::MutexLock lock(&received_mu_);
  if (received_ != nullptr) RemoveReceived();
}

void JobShard::RemoveReceived() {
  received_ = nullptr;
  unwritten_.clear();
  options_.files
      ->Remove(
          push_log::ReceivedFolder(options_.log_root, request_.job_id(), request_.generation()))
      .IgnoreError();
}

absl::StatusOr<std::shared_ptr<JobShard>> JobShard::OpenReceived(const std::string& job_id,
                                                                 uint64_t generation, uint64_t end,
                                                                 const Options& options,
                                                                 JobShard* near,
                                                                 KeepGoing keep_going) {
  const std::string folder = push_log::ReceivedFolder(options.log_root, job_id, generation);
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<PushLogReader> reader,
                           PushLogReader::Open(*options.files, folder, std::nullopt));
  TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<JobShard> shard,
                           OpenEmpty(reader->head().opened(), options, near));
  while (reader->next_record() < end) {
    TESSERA_RETURN_IF_ERROR(keep_going());
    TESSERA_ASSIGN_OR_RETURN(const std::optional<PushLogReader::Record> record, reader->Next());
    if (!record.has_value()) break;
    v1::RowChunk chunk;
    if (record->kind != push_log::Kind::kRows || !chunk.ParseFromString(record->text)) {
      return absl::DataLossError(absl::StrCat(record->where, ": are no rows"));
    }
    TESSERA_RETURN_IF_ERROR(WithContext(shard->ReceiveChunk(chunk).status(), record->where));
  }
  TESSERA_RETURN_IF_ERROR(CheckEnd(*reader, end, folder));
  return shard;
}

}  // namespace tessera::ps

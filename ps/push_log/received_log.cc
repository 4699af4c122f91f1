#include "ps/push_log/received_log.h"

#include <utility>

#include "common/log.h"
#include "common/status_macros.h"

namespace tessera::ps {

void ReceivedLog::Begin(PushLog::Options options, const v1::OpenJobRequest& opened) {
  v1::PushLogHead head;
  *head.mutable_opened() = opened;
  absl::MutexLock lock(&mu_);
  files_ = options.files;
  folder_ = options.folder;
  auto log = PushLog::Create(std::move(options), head);
  if (!log.ok()) return GiveUp(log.status());
  log_ = *std::move(log);
}

void ReceivedLog::Add(const v1::RowChunk& chunk, bool later) {
  absl::MutexLock lock(&mu_);
  if (log_ == nullptr) return;
  unwritten_.push_back(chunk.SerializeAsString());
  unwritten_bytes_ += unwritten_.back().size();
  if (!later || unwritten_bytes_ > kMaxLaterBytes) Write();
}

void ReceivedLog::Write() {
  unwritten_bytes_ = 0;
  for (const std::string& record : std::exchange(unwritten_, {})) {
    if (const absl::Status written = Append(record); !written.ok()) return GiveUp(written);
  }
}

absl::Status ReceivedLog::Append(const std::string& record) {
  TESSERA_RETURN_IF_ERROR(log_->Append(push_log::Kind::kRows, record, ""));
  undrained_ += record.size();
  if (undrained_ < kDrainEveryBytes) return absl::OkStatus();
  undrained_ = 0;
  return log_->Drain(kDrainEveryBytes);
}

std::optional<uint64_t> ReceivedLog::Sync() {
  absl::MutexLock lock(&mu_);
  if (log_ == nullptr) return std::nullopt;
  if (const absl::Status synced = log_->Sync(); !synced.ok()) {
    GiveUp(synced);
    return std::nullopt;
  }
  return log_->end().next_record + unwritten_.size();
}

void ReceivedLog::TakeOver(ReceivedLog& from) {
  absl::MutexLock from_lock(&from.mu_);
  absl::MutexLock lock(&mu_);
  files_ = from.files_;
  folder_ = from.folder_;
  log_ = std::move(from.log_);
  unwritten_ = std::exchange(from.unwritten_, {});
  unwritten_bytes_ = std::exchange(from.unwritten_bytes_, 0);
}

void ReceivedLog::Finish() {
  absl::MutexLock lock(&mu_);
  if (log_ != nullptr) Write();
  log_ = nullptr;
}

void ReceivedLog::Remove() {
  absl::MutexLock lock(&mu_);
  if (log_ == nullptr) return;
  unwritten_.clear();
  RemoveLog();
}

void ReceivedLog::RemoveLog() {
  log_ = nullptr;
  files_->Remove(folder_).IgnoreError();
}

void ReceivedLog::GiveUp(const absl::Status& why) {
  SPDLOG_WARN(
      "rows that come from other ps are not logged, so that a ps that is lost before the next "
      "checkpoint takes their job back to the last one: {}",
      std::string(why.message()));
  RemoveLog();
}

}  // namespace tessera::ps

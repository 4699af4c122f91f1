// JobShard: the push log. Whatever changes rows is logged before it is acknowledged, and read again
// when a ps comes back.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "ps/jobs/job_shard.h"
#include "ps/push_log/folders.h"
#include "ps/push_log/head.h"
#include "ps/push_log/logged_push.h"

namespace tessera::ps {
namespace {

// Whether an error says nothing about the record, which is taken once there is room or the disk
// answers.
bool MayPass(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsUnavailable(status) ||
         absl::IsDeadlineExceeded(status) || absl::IsCancelled(status) || absl::IsAborted(status);
}

// DATA_LOSS: the log ends before record `end`.
absl::Status CheckEnd(const PushLogReader& reader, uint64_t end, const std::string& folder) {
  if (reader.next_record() == end) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(folder, ": the log goes to record ",
                                          reader.next_record() - 1, ", expected record ", end - 1));
}

}  // namespace

absl::Status JobShard::OpenLog(KeepGoing keep_going, const std::optional<v1::TookOver>& took_over) {
  const std::string job = absl::StrCat("job ", request_.job_id());
  if (request_.push_log() <= v1::RecoverySpec::OFF) {
    if (!request_.recover()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(job, ": has no push log to recover from; set recovery.push_log"));
  }
  if (options_.log_root.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(job,
                     ": has a push log (recovery.push_log), and this ps no folder to keep it "
                     "in; start tessera-ps with --data-dir"));
  }
  PushLog::Options options = LogOptions();
  if (!request_.recover()) {
    v1::PushLogHead head = LogHead();
    // Rows that came from memory are in no checkpoint: logs of earlier generations lead back to
    // them. Logs of other rows are needed no more.
    if (!request_.follow().empty()) {
      // What is received meanwhile is for a later generation.
      TESSERA_RETURN_IF_ERROR(push_log::RemoveLogsBefore(*options_.files, options_.log_root,
                                                         request_.job_id(), request_.generation()));
      // The follower's cut comes with the records that it is fed.
      absl::MutexLock lock(&follow_mu_);
      following_ = replaying_ = true;
    } else if (request_.take_over() == 0) {
      TESSERA_RETURN_IF_ERROR(
          options_.files->Remove(push_log::JobFolder(options_.log_root, request_.job_id())));
      head.set_cut(request_.checkpoint());
    } else if (took_over.has_value()) {
      *head.mutable_took_over() = *took_over;
    }
    TESSERA_ASSIGN_OR_RETURN(log_, PushLog::Create(std::move(options), head));
    BeginFeed();
    return absl::OkStatus();
  }
  const absl::Duration start = options_.clock->Monotonic();
  std::optional<absl::string_view> cut;
  if (request_.take_over() == 0) cut = request_.checkpoint();
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<PushLogReader> reader,
                           PushLogReader::Open(*options_.files, options.folder, cut));
  TESSERA_RETURN_IF_ERROR(TakeHead(reader->head()));
  replaying_ = true;
  uint64_t records = 0;
  const uint64_t until = options_.read_log_until;
  while (until == 0 || reader->next_record() < until) {
    TESSERA_RETURN_IF_ERROR(keep_going());
    TESSERA_ASSIGN_OR_RETURN(std::optional<PushLogReader::Record> record, reader->Next());
    if (!record.has_value()) break;
    const std::string where = record->where;
    const absl::Status replayed = Replay(*std::move(record));
    if (MayPass(replayed)) return WithContext(replayed, where);
    if (!replayed.ok()) {
      return absl::DataLossError(
          absl::StrCat(where, ": was taken once, and now it is not: ", replayed.message()));
    }
    ++records;
  }
  replaying_ = false;
  SPDLOG_INFO("{}: {} records of the push log replayed in {}; {} bytes after them are no record",
              job, records, absl::FormatDuration(options_.clock->Monotonic() - start),
              reader->bytes_behind());
  if (until > 0) return CheckEnd(*reader, until, options.folder);
  TESSERA_ASSIGN_OR_RETURN(log_, PushLog::Continue(std::move(options), reader->segments(),
                                                   reader->next_record(), LogHead()));
  BeginFeed();
  return absl::OkStatus();
}

void JobShard::LogReceived() {
  if (request_.push_log() <= v1::RecoverySpec::OFF || options_.log_root.empty()) return;
  PushLog::Options options = LogOptions();
  options.folder =
      push_log::ReceivedFolder(options_.log_root, request_.job_id(), request_.generation());
  received_log_.Begin(std::move(options), request_);
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
    TESSERA_RETURN_IF_ERROR(WithContext(shard->Receive(chunk).status(), record->where));
  }
  TESSERA_RETURN_IF_ERROR(CheckEnd(*reader, end, folder));
  return shard;
}

PushLog::Options JobShard::LogOptions() const {
  PushLog::Options options;
  options.files = options_.files;
  options.folder =
      push_log::GenerationFolder(options_.log_root, request_.job_id(), request_.generation());
  options.fsync = request_.push_log() == v1::RecoverySpec::FSYNC;
  options.max_bytes = options_.max_log_bytes;
  options.logs = options_.logs;
  options.on_fuller = options_.on_fuller_log;
  return options;
}

v1::PushLogHead JobShard::LogHead() const {
  v1::PushLogHead head;
  *head.mutable_opened() = request_;
  absl::MutexLock lock(&mu_);
  order_.Save(head);
  return head;
}

absl::Status JobShard::TakeHead(const v1::PushLogHead& head) {
  const auto other = [this](const auto&... what) {
    return absl::FailedPreconditionError(
        absl::StrCat("the push log of job ", request_.job_id(), " here ", what...));
  };
  if (!push_log::OpenSameShard(head.opened(), request_)) {
    return other("was written for other tables or another set of ps");
  }
  absl::MutexLock lock(&mu_);
  const absl::Status loaded = order_.Load(head, request_.first_step());
  return loaded.ok() ? loaded : other(loaded.message());
}

absl::Status JobShard::Replay(PushLogReader::Record record) {
  switch (record.kind) {
    case push_log::Kind::kPush: {
      TESSERA_ASSIGN_OR_RETURN(PushCall call,
                               push_log::DecodePush(record.text, std::move(record.bulk)));
      return Push(std::move(call));
    }
    case push_log::Kind::kAssign: {
      v1::AssignRequest request;
      if (!request.ParseFromString(record.text)) return absl::DataLossError("is no assignment");
      return Assign(request);
    }
    case push_log::Kind::kExpiry: {
      v1::LoggedExpiry expiry;
      if (!expiry.ParseFromString(record.text)) return absl::DataLossError("is no expiry");
      // The expiry was at a barrier. The log does not say that the ranks had confirmed all before.
      ConfirmAll(expiry.applied_steps());
      // to a follower's own log
      TESSERA_RETURN_IF_ERROR(LogMessage(push_log::Kind::kExpiry, expiry));
      for (const auto& table : tables_) {
        TESSERA_RETURN_IF_ERROR(table->Expire(expiry.applied_steps()));
      }
      return absl::OkStatus();
    }
    case push_log::Kind::kHead:
    case push_log::Kind::kRows:  // in a log of their own
      break;
  }
  return absl::UnimplementedError(
      absl::StrCat("is of kind ", static_cast<uint32_t>(record.kind), ", unknown here"));
}

absl::Status JobShard::LogPush(const PushCall& call) {
  if (log_ == nullptr) return absl::OkStatus();
  return LogError(log_->Append(push_log::Kind::kPush, push_log::EncodePush(call),
                               absl::string_view(call.memory.data(), call.memory.size())));
}

absl::Status JobShard::LogMessage(push_log::Kind kind,
                                  const google::protobuf::MessageLite& message) {
  if (log_ == nullptr) return absl::OkStatus();
  return LogError(log_->Append(kind, message.SerializeAsString(), ""));
}

absl::Status JobShard::SyncLog() {
  if (log_ == nullptr) return absl::OkStatus();
  if (feed_ != nullptr) feed_->Appended();
  return LogError(log_->Sync());
}

absl::Status JobShard::LogError(const absl::Status& status) {
  if (status.ok()) return status;
  TESSERA_RETURN_IF_ERROR(Closed());
  // A full disk gets room again, a failed one does not come back.
  return absl::IsResourceExhausted(status) ? status : Fail(status);
}

}  // namespace tessera::ps

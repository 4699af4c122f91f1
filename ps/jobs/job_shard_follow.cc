// JobShard: another ps that has the same rows. The serving shard feeds it its push log; the
// follower takes up every record as if it came back with that log itself.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checksum.h"
#include "common/status_macros.h"
#include "ps/jobs/job_shard.h"

namespace tessera::ps {
absl::StatusOr<LogFeed*> JobShard::Feed() const {
  if (feed_ != nullptr) return feed_.get();
  return absl::FailedPreconditionError(absl::StrCat(
      "job ", request_.job_id(), ": has no push log to be followed; set recovery.push_log"));
}

absl::Status JobShard::SetFollower(uint64_t pair, std::string follower) {
  TESSERA_ASSIGN_OR_RETURN(LogFeed * feed, Feed());
  TESSERA_RETURN_IF_ERROR(feed->SetPair(pair, std::move(follower)));
  ForgetWhatWasHeld();
  return absl::OkStatus();
}

void JobShard::ForgetWhatWasHeld() {
  // A checkpoint that is committed meanwhile says so itself.
  if (!log_is_held_.exchange(false)) return;
  const std::optional<std::string> cut = feed_->committed();
  if (cut.has_value() && !log_->Forget(*cut, feed_->needed_from())) log_is_held_ = true;
}

void JobShard::ReadLog(const v1::ReadLogRequest& request, absl::Duration deadline,
                       LogFeed::ReadDone done) {
  const absl::StatusOr<LogFeed*> feed = Feed();
  if (!feed.ok()) return std::move(done)(feed.status());
  (*feed)->Read(request, deadline, std::move(done));
  ForgetWhatWasHeld();
}

void JobShard::AwaitFollower(LogFeed::Done done) {
  if (feed_ == nullptr) return std::move(done)(absl::OkStatus());
  feed_->Await(std::move(done));
}

uint64_t JobShard::replica() const { return feed_ == nullptr ? 0 : feed_->in_sync(); }

absl::Duration JobShard::replica_wait() const {
  return feed_ == nullptr ? absl::ZeroDuration() : feed_->oldest_wait();
}

v1::ReadLogRequest JobShard::NextRead() const {
  v1::ReadLogRequest request;
  request.set_job_id(request_.job_id());
  request.set_generation(request_.generation());
  request.set_pair(request_.pair());
  request.set_cut(request_.checkpoint());
  absl::MutexLock lock(&follow_mu_);
  request.set_next_record(next_followed_);
  return request;
}

absl::Status JobShard::Follow(v1::ReadLogResponse response) {
  absl::MutexLock lock(&follow_mu_);
  if (!following_) {
    return absl::AbortedError(
        absl::StrCat("job ", request_.job_id(), ": this ps follows nobody any more"));
  }
  for (v1::LogRecord& record : *response.mutable_records()) {
    const uint64_t number = record.number();
    const absl::Status taken = FollowRecord(std::move(record));
    if (absl::IsResourceExhausted(taken)) {
      // The records before this one count as taken (NextRead).
      TESSERA_RETURN_IF_ERROR(SyncLog());
      return taken;
    }
    if (!taken.ok()) {
      return absl::DataLossError(
          absl::StrCat("job ", request_.job_id(), ": record ", number,
                       " of the push log that is followed: ", taken.message()));
    }
    next_followed_ = number + 1;
  }
  TESSERA_RETURN_IF_ERROR(SyncLog());
  if (response.has_committed() && response.committed() != committed_) {
    log_->Forget(response.committed(), feed_->needed_from());
    committed_ = response.committed();
  }
  return expired_eraser_.Erase();
}

absl::Status JobShard::FollowRecord(v1::LogRecord record) {
  Checksum64 checksum;
  checksum.Add(record.text());
  checksum.Add(record.bulk());
  if (checksum.Value() != record.checksum()) return absl::DataLossError("was changed on its way");
  if (next_followed_ > 0 && record.number() != next_followed_) {
    return absl::DataLossError(absl::StrCat("record ", next_followed_, " was expected"));
  }
  const auto kind = static_cast<push_log::Kind>(record.kind());
  if (kind == push_log::Kind::kHead) {
    v1::PushLogHead head;
    if (!head.ParseFromString(record.text())) return absl::DataLossError("is no head");
    return FollowHead(head);
  }
  if (next_followed_ == 0) return absl::DataLossError("comes before any head");
  if (kind == push_log::Kind::kExpiry) expired_eraser_.Want();
  wire::Buffer bulk(record.bulk().size());
  std::copy(record.bulk().begin(), record.bulk().end(), bulk.data());
  return Replay({.kind = kind,
                 .number = record.number(),
                 .text = std::move(*record.mutable_text()),
                 .bulk = std::move(bulk),
                 .where = ""});
}

absl::Status JobShard::FollowHead(const v1::PushLogHead& head) {
  if (next_followed_ == 0) {
    TESSERA_RETURN_IF_ERROR(TakeHead(head));
    v1::PushLogHead own = LogHead();
    own.set_cut(request_.checkpoint());
    return LogError(log_->Cut(own));
  }
  // The leader began this segment because of its own disk, not at a cut.
  if (!head.has_cut()) return absl::OkStatus();
  ConfirmAll(head.next_step());
  v1::PushLogHead own = LogHead();
  if (own.next_step() != head.next_step()) {
    return absl::DataLossError(absl::StrCat("is a cut at step ", head.next_step(),
                                            ", and this ps has applied those below ",
                                            own.next_step()));
  }
  own.set_cut(head.cut());
  return LogError(log_->Cut(own));
}

absl::Status JobShard::StopFollowing() {
  absl::MutexLock lock(&follow_mu_);
  following_ = false;
  if (next_followed_ == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", request_.job_id(), ": this ps has followed nobody yet"));
  }
  replaying_ = false;
  return absl::OkStatus();
}

void JobShard::BeginFeed() {
  feed_ = std::make_unique<LogFeed>(LogFeed::Options{
      .files = options_.files, .log = log_.get(), .clock = options_.clock, .run = options_.run});
}

}  // namespace tessera::ps

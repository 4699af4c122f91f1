#include "ps/push_log/log_feed.h"

#include <limits>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/checksum.h"
#include "common/status_macros.h"
#include "ps/memory/or_exhausted.h"

namespace tessera::ps {
namespace {

// Bytes of an answer; one record may be larger.
constexpr uint64_t kAnswerBytes = 1 << 20;

}  // namespace

absl::Status LogFeed::CheckPair(uint64_t pair) const {
  TESSERA_RETURN_IF_ERROR(closed_);
  if (pair == pair_) return absl::OkStatus();
  const std::string what = absl::StrCat(options_.log->folder(), ": pair ", pair,
                                        " is asked for, and pair ", pair_, " is current");
  // If the caller's pair is the later one, this ps has not been told of it yet.
  return pair < pair_ ? absl::AbortedError(what) : absl::UnavailableError(what);
}

absl::Status LogFeed::SetPair(uint64_t pair, std::string follower) {
  std::list<Waiting> waiting;
  std::optional<Poll> poll;
  {
    absl::MutexLock lock(&mu_);
    TESSERA_RETURN_IF_ERROR(closed_);
    if (pair == pair_) return absl::OkStatus();
    if (pair < pair_) return CheckPair(pair);
    pair_ = pair;
    follower_ = std::move(follower);
    has_below_ = 0;
    begins_at_ = committed_first_;
    in_sync_ = false;
    late_.reset();
    waiting.swap(waiting_);
    poll = std::exchange(poll_, std::nullopt);
  }
  for (Waiting& w : waiting) std::move(w.done)(absl::OkStatus());
  if (poll.has_value()) {
    std::move(poll->done)(absl::AbortedError(
        absl::StrCat(options_.log->folder(), ": pair ", pair, " has been told")));
  }
  return absl::OkStatus();
}

std::list<LogFeed::Waiting> LogFeed::Confirm(uint64_t below) {
  std::list<Waiting> ready;
  if (below <= has_below_) return ready;
  has_below_ = below;
  // A push that looks for a follower from now on has appended its record before it looked.
  in_sync_ = in_sync_ || has_below_ >= options_.log->end().next_record;
  if (late_.has_value() && late_->below <= has_below_) late_.reset();
  while (!waiting_.empty() && waiting_.front().wait.below <= has_below_) {
    ready.splice(ready.end(), waiting_, waiting_.begin());
  }
  return ready;
}

std::list<LogFeed::Waiting> LogFeed::TakeLate() {
  const absl::Duration now = options_.clock->Monotonic();
  std::list<Waiting> late;
  while (!waiting_.empty() && now - waiting_.front().wait.since >= kLongestWait) {
    if (!late_.has_value()) late_ = waiting_.front().wait;
    late.splice(late.end(), waiting_, waiting_.begin());
  }
  return late;
}

const LogFeed::Wait* LogFeed::Oldest() const {
  if (late_.has_value()) return &*late_;
  return waiting_.empty() ? nullptr : &waiting_.front().wait;
}

std::string LogFeed::Describe(const Wait& wait) const {
  const absl::Duration waited = options_.clock->Monotonic() - wait.since;
  return absl::StrCat(follower_, ", which has a copy of the rows, lacks record ", wait.below - 1,
                      " of the push log since ",
                      absl::FormatDuration(absl::Trunc(waited, absl::Milliseconds(1))));
}

void LogFeed::Read(const v1::ReadLogRequest& request, absl::Duration deadline, ReadDone done) {
  std::list<Waiting> ready;
  std::optional<Poll> before;
  std::optional<Poll> now;
  Poll poll = {.request = request, .deadline = deadline, .done = std::move(done)};
  absl::Status refused;
  {
    absl::MutexLock lock(&mu_);
    refused = CheckPair(request.pair());
    const uint64_t end = options_.log->end().next_record;
    if (refused.ok() && follower_.empty()) {
      refused = absl::FailedPreconditionError(
          absl::StrCat(options_.log->folder(), ": nobody is to have a copy of it"));
    } else if (refused.ok() && request.next_record() > end) {
      refused = absl::FailedPreconditionError(
          absl::StrCat(options_.log->folder(), ": record ", request.next_record(),
                       " is asked for, the last one is ", end - 1));
    }
    if (refused.ok()) {
      ready = Confirm(request.next_record());
      before = std::exchange(poll_, std::move(poll));
      now = TakePoll();
    }
  }
  if (!refused.ok()) return std::move(poll.done)(refused);
  for (Waiting& w : ready) std::move(w.done)(absl::OkStatus());
  // The caller of the poll before has asked again.
  if (before.has_value()) std::move(before->done)(v1::ReadLogResponse());
  if (now.has_value()) Answer(*std::move(now));
}

std::optional<LogFeed::Poll> LogFeed::TakePoll() {
  if (!poll_.has_value()) return std::nullopt;
  const bool grown = poll_->request.next_record() < options_.log->end().next_record;
  const bool late = poll_->deadline <= options_.clock->Monotonic();
  if (!grown && !late) return std::nullopt;
  return std::exchange(poll_, std::nullopt);
}

void LogFeed::Appended() {
  std::optional<Poll> poll;
  {
    absl::MutexLock lock(&mu_);
    poll = TakePoll();
  }
  if (poll.has_value()) AnswerElsewhere(*std::move(poll));
}

void LogFeed::AnswerElsewhere(Poll poll) {
  if (options_.run == nullptr) return Answer(std::move(poll));
  options_.run([this, poll = std::move(poll)]() mutable { Answer(std::move(poll)); });
}

void LogFeed::Answer(Poll poll) {
  const auto read = [&]() -> absl::StatusOr<v1::ReadLogResponse> {
    TESSERA_ASSIGN_OR_RETURN(v1::ReadLogResponse response, ReadFor(poll.request));
    absl::MutexLock lock(&mu_);
    if (committed_.has_value()) response.set_committed(*committed_);
    return response;
  };
  std::move(poll.done)(OrExhausted("records of a push log", read));
}

absl::StatusOr<v1::ReadLogResponse> LogFeed::ReadFor(const v1::ReadLogRequest& request) {
  const PushLog::End end = options_.log->end();
  absl::MutexLock lock(&reader_mu_);
  // After an error nobody knows how far the reader has come.
  absl::Cleanup forget = [this] {
    reader_mu_.AssertHeld();
    reader_ = nullptr;
  };
  const bool goes_on = reader_ != nullptr && reader_cut_ == request.cut() &&
                       reader_->next_record() == request.next_record();
  if (!goes_on) {
    reader_ = nullptr;
    // The cut's own segment may be gone by now: checkpoints since then cover it.
    TESSERA_ASSIGN_OR_RETURN(
        reader_,
        request.next_record() > 0
            ? PushLogReader::OpenAt(*options_.files, options_.log->folder(), request.next_record())
            : PushLogReader::Open(*options_.files, options_.log->folder(), request.cut()));
    reader_cut_ = request.cut();
    while (request.next_record() > 0 && reader_->next_record() < request.next_record() &&
           reader_->next_record() < end.next_record) {
      TESSERA_RETURN_IF_ERROR(reader_->NextOf(end).status());
    }
    if (request.next_record() > 0 && reader_->next_record() != request.next_record()) {
      return absl::FailedPreconditionError(absl::StrCat(
          options_.log->folder(), ": record ", request.next_record(),
          " is asked for; it has records ", reader_->next_record(), " to ", end.next_record - 1));
    }
  }
  v1::ReadLogResponse response;
  for (uint64_t bytes = 0; bytes < kAnswerBytes && reader_->next_record() < end.next_record;) {
    TESSERA_ASSIGN_OR_RETURN(PushLogReader::Record record, reader_->NextOf(end));
    const absl::string_view bulk(record.bulk.data(), record.bulk.size());
    bytes += record.text.size() + bulk.size();
    v1::LogRecord& out = *response.add_records();
    out.set_kind(static_cast<uint32_t>(record.kind));
    out.set_number(record.number);
    out.set_bulk(bulk.data(), bulk.size());
    Checksum64 checksum;
    checksum.Add(record.text);
    checksum.Add(bulk);
    out.set_checksum(checksum.Value());
    out.set_text(std::move(record.text));
  }
  std::move(forget).Cancel();
  return response;
}

void LogFeed::Committed(const std::string& cut, uint64_t first) {
  absl::MutexLock lock(&mu_);
  committed_ = cut;
  committed_first_ = first;
}

std::optional<std::string> LogFeed::committed() const {
  absl::MutexLock lock(&mu_);
  return committed_;
}

void LogFeed::Await(Done done) {
  absl::Status status;
  {
    absl::MutexLock lock(&mu_);
    status = closed_;
    const uint64_t below = options_.log->end().next_record;
    if (status.ok() && in_sync_ && has_below_ < below) {
      waiting_.push_back({.wait = {.below = below, .since = options_.clock->Monotonic()},
                          .done = std::move(done)});
      return;
    }
  }
  std::move(done)(status);
}

void LogFeed::Expire() {
  std::optional<Poll> poll;
  std::list<Waiting> late;
  absl::Status why;
  {
    absl::MutexLock lock(&mu_);
    // Makes the status first: a call that is taken out must be answered, even without memory.
    if (const Wait* const oldest = Oldest(); oldest != nullptr) {
      why = absl::UnavailableError(absl::StrCat(options_.log->folder(), ": ", Describe(*oldest)));
    }
    poll = TakePoll();
    late = TakeLate();
  }
  for (Waiting& w : late) std::move(w.done)(why);
  // Not here, where calls of all jobs are ended: it may read the disk.
  if (poll.has_value()) AnswerElsewhere(*std::move(poll));
}

void LogFeed::Close(absl::Status reason) {
  std::list<Waiting> waiting;
  std::optional<Poll> poll;
  {
    absl::MutexLock lock(&mu_);
    if (closed_.ok()) closed_ = reason;
    late_.reset();
    waiting.swap(waiting_);
    poll = std::exchange(poll_, std::nullopt);
  }
  for (Waiting& w : waiting) std::move(w.done)(reason);
  if (poll.has_value()) std::move(poll->done)(reason);
}

uint64_t LogFeed::needed_from() const {
  absl::MutexLock lock(&mu_);
  if (follower_.empty()) return std::numeric_limits<uint64_t>::max();
  return has_below_ > 0 ? has_below_ : begins_at_;
}

std::string LogFeed::follower() const {
  absl::MutexLock lock(&mu_);
  return follower_;
}

uint64_t LogFeed::in_sync() const {
  absl::MutexLock lock(&mu_);
  return in_sync_ ? pair_ : 0;
}

absl::Duration LogFeed::oldest_wait() const {
  absl::MutexLock lock(&mu_);
  const Wait* const oldest = Oldest();
  return oldest == nullptr ? absl::ZeroDuration() : options_.clock->Monotonic() - oldest->since;
}

std::string LogFeed::DescribeWait() const {
  absl::MutexLock lock(&mu_);
  const Wait* const oldest = Oldest();
  return oldest == nullptr ? "" : Describe(*oldest);
}

}  // namespace tessera::ps

#include "ps/jobs/log_follower.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "common/backoff.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/rpc/status.h"
#include "common/status_macros.h"
#include "ps/memory/or_exhausted.h"
#include "tessera/v1/parameter_service.grpc.pb.h"

namespace tessera::ps {
namespace {

// Longest time of one call; an answer without records comes after a second.
constexpr absl::Duration kCall = absl::Seconds(10);
// A copy that lacks room for so long is given up: the log that it follows is kept for it meanwhile.
constexpr absl::Duration kLongestLack = absl::Seconds(5);

}  // namespace

bool MayFollowAgain(const absl::Status& status) { return IsRetryable(status) || IsBroken(status); }

LogFollower::LogFollower(Jobs* jobs, Channels* channels, v1::OpenJobRequest request)
    : jobs_(jobs), channels_(channels), request_(std::move(request)) {
  thread_ = std::thread([this] { Run(); });
}

LogFollower::~LogFollower() {
  {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
    if (call_ != nullptr) call_->TryCancel();
  }
  thread_.join();
}

absl::Status LogFollower::Wanted() const {
  {
    absl::MutexLock lock(&mu_);
    if (stopped_) return absl::CancelledError("the ps is stopping");
  }
  return jobs_->CheckFollowing(request_);
}

bool LogFollower::Pause(absl::Duration wait) {
  absl::MutexLock lock(&mu_);
  return !mu_.AwaitWithTimeout(absl::Condition(&stopped_), wait);
}

void LogFollower::Run() {
  const absl::Status status = OrExhausted("a copy of another ps's rows", [&] { return Follow(); });
  // If following is no longer wanted, nobody reads this.
  jobs_->FollowingFailed(request_, status);
  SPDLOG_INFO("job {}: follows {} no more: {}", request_.job_id(), request_.follow(),
              std::string(status.message()));
  ended_ = true;
}

absl::Status LogFollower::Follow() {
  TESSERA_ASSIGN_OR_RETURN(const std::shared_ptr<JobShard> shard,
                           jobs_->OpenFollower(request_, [this] { return Wanted(); }));
  const auto stub = v1::ParameterService::NewStub(channels_->Connect(request_.follow()));
  Backoff backoff({.first = absl::Milliseconds(20), .longest = absl::Seconds(1)});
  absl::Duration lacks_since = absl::InfiniteDuration();  // by the monotonic clock
  while (true) {
    TESSERA_RETURN_IF_ERROR(Wanted());
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kCall));
    {
      absl::MutexLock lock(&mu_);
      call_ = &context;
    }
    v1::ReadLogResponse response;
    absl::Status status = FromGrpc(stub->ReadLog(&context, shard->NextRead(), &response));
    {
      absl::MutexLock lock(&mu_);
      call_ = nullptr;
    }
    const bool read = status.ok();
    if (read) status = shard->Follow(std::move(response));
    if (status.ok()) {
      backoff.Reset();
      lacks_since = absl::InfiniteDuration();
      continue;
    }
    if (!MayFollowAgain(status)) return status;
    const absl::Duration now = SystemClock().Monotonic();
    if (read) lacks_since = std::min(lacks_since, now);
    if (now - lacks_since > kLongestLack) return status;
    if (!Pause(backoff.Next())) return absl::CancelledError("the ps is stopping");
  }
}

absl::Status Followers::Follow(const v1::OpenJobRequest& request) {
  TESSERA_ASSIGN_OR_RETURN(const bool is_new, jobs_->BeginFollowing(request));
  if (!is_new) return absl::OkStatus();
  const auto begin = [&]() -> absl::Status {
    absl::MutexLock lock(&mu_);
    followers_.remove_if([](const LogFollower& follower) { return follower.ended(); });
    followers_.emplace_back(jobs_, channels_, request);
    return absl::OkStatus();
  };
  const absl::Status begun = OrExhausted("a copy of another ps's rows", begin);
  // Otherwise the job would be taken for one that is followed.
  if (!begun.ok()) jobs_->FollowingFailed(request, begun);
  return begun;
}

}  // namespace tessera::ps

#include "client/job_client.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "common/job/job_state.h"
#include "common/rpc/status.h"
#include "common/status_macros.h"
#include "common/version.h"

namespace tessera::client {
namespace {

constexpr absl::Duration kLookEvery = absl::Milliseconds(200);
constexpr absl::Duration kShortestTry = absl::Seconds(1);
constexpr absl::Duration kSayEvery = absl::Seconds(5);
// A stream is renewed so often, so that no wait is without a deadline.
constexpr absl::Duration kStreamLimit = absl::Minutes(5);

absl::Status Interrupted() { return absl::CancelledError("interrupted"); }

}  // namespace

JobClient::JobClient(Options options) : options_(std::move(options)) { Reconnect(); }

void JobClient::Reconnect() {
  std::shared_ptr<Stub> stub =
      v1::JobService::NewStub(options_.channels->Connect(options_.master_address));
  absl::MutexLock lock(&mu_);
  stub_ = std::move(stub);
}

void JobClient::Interrupt() {
  absl::MutexLock lock(&mu_);
  interrupted_ = true;
  for (grpc::ClientContext* context : running_) context->TryCancel();
  for (MasterSurvey* survey : surveys_) survey->Cancel();
}

bool JobClient::Sleep(absl::Duration duration) {
  absl::MutexLock lock(&mu_);
  return !mu_.AwaitWithTimeout(absl::Condition(&interrupted_), duration);
}

absl::Status JobClient::CallOnce(absl::Duration limit, const Try& call) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + limit));
  std::shared_ptr<Stub> stub;
  {
    absl::MutexLock lock(&mu_);
    if (interrupted_) return Interrupted();
    stub = stub_;
    running_.push_back(&context);
  }
  const absl::Status status = call(*stub, context);
  absl::MutexLock lock(&mu_);
  running_.erase(std::find(running_.begin(), running_.end(), &context));
  if (interrupted_ && !status.ok()) return Interrupted();
  // A master that stops may answer so, too.
  return absl::IsCancelled(status) ? absl::UnavailableError(status.message()) : status;
}

std::string JobClient::Why(const absl::Status& status) {
  MasterSurvey survey(options_.channels, options_.master_address);
  {
    absl::MutexLock lock(&mu_);
    surveys_.push_back(&survey);
    if (interrupted_) survey.Cancel();
  }
  std::string why = survey.Why(status);
  absl::MutexLock lock(&mu_);
  surveys_.erase(std::find(surveys_.begin(), surveys_.end(), &survey));
  return why;
}

std::string JobClient::Waiting(const std::string& why, absl::Duration since) const {
  return absl::StrCat(
      "waiting for the master at ", options_.master_address,
      since > absl::ZeroDuration()
          ? absl::StrCat(" for ", absl::FormatDuration(absl::Trunc(since, absl::Seconds(1))))
          : "",
      ": ", why);
}

absl::Status JobClient::CallWithPatience(const Try& call) {
  Backoff backoff(options_.backoff);
  const absl::Duration begin = SystemClock().Monotonic();
  std::optional<absl::Duration> said;
  while (true) {
    const absl::Duration left = options_.patience - (SystemClock().Monotonic() - begin);
    const absl::Status status =
        CallOnce(std::min(options_.call_limit, std::max(left, kShortestTry)), call);
    if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return status;
    const absl::Duration now = SystemClock().Monotonic();
    const absl::Duration waited = now - begin;
    if (waited >= options_.patience) {
      const std::string why = Why(status);
      if (!Sleep(absl::ZeroDuration())) return Interrupted();
      return absl::UnavailableError(absl::StrCat(
          "no answer from the master at ", options_.master_address, " in ",
          absl::FormatDuration(absl::Ceil(waited, absl::Milliseconds(1))), ": ", why,
          "; is tessera-master running there? (--master HOST:PORT names another, --tls-ca is for "
          "one with TLS)"));
    }
    if (options_.on_wait && (!said.has_value() || now - *said >= kSayEvery)) {
      options_.on_wait(Waiting(Why(status), said.has_value() ? waited : absl::ZeroDuration()));
      said = now;
    }
    if (!Sleep(backoff.Next())) return Interrupted();
    Reconnect();
  }
}

absl::StatusOr<std::string> JobClient::Submit(const v1::SubmitRequest& request) {
  // Begins with a call that may be repeated, so that a master that is down does not leave it open
  // whether the job was submitted.
  TESSERA_ASSIGN_OR_RETURN(const v1::ClusterStatus cluster, GetCluster());
  if (cluster.protocol() != kProtocolVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the master at ", options_.master_address, " is version ", cluster.version(),
        " with protocol ", cluster.protocol(), ", this client is version ", kVersion,
        " with protocol ", kProtocolVersion, "; use the client of the master's version"));
  }
  v1::SubmitResponse response;
  const absl::Status status =
      CallOnce(options_.call_limit, [&](Stub& stub, grpc::ClientContext& context) {
        return FromGrpc(stub.Submit(&context, request, &response));
      });
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
    return absl::UnknownError(absl::StrCat("the master at ", options_.master_address,
                                           " was lost while the job was sent (", status.message(),
                                           "); `tessera list` says whether it has the job"));
  }
  if (absl::IsCancelled(status)) {
    return absl::CancelledError(absl::StrCat("interrupted while the job was sent to the master at ",
                                             options_.master_address,
                                             "; `tessera list` says whether it has the job"));
  }
  TESSERA_RETURN_IF_ERROR(status);
  return response.job_id();
}

absl::StatusOr<v1::JobStatus> JobClient::Get(const std::string& job_id) {
  v1::GetRequest request;
  request.set_job_id(job_id);
  v1::JobStatus response;
  TESSERA_RETURN_IF_ERROR(CallWithPatience([&](Stub& stub, grpc::ClientContext& context) {
    return FromGrpc(stub.Get(&context, request, &response));
  }));
  return response;
}

absl::StatusOr<std::vector<v1::JobStatus>> JobClient::List() {
  v1::ListResponse response;
  TESSERA_RETURN_IF_ERROR(CallWithPatience([&](Stub& stub, grpc::ClientContext& context) {
    return FromGrpc(stub.List(&context, v1::ListRequest(), &response));
  }));
  return std::vector<v1::JobStatus>(response.jobs().begin(), response.jobs().end());
}

absl::Status JobClient::Cancel(const std::string& job_id) {
  v1::CancelRequest request;
  request.set_job_id(job_id);
  v1::CancelResponse response;
  const absl::Status status = CallWithPatience([&](Stub& stub, grpc::ClientContext& context) {
    return FromGrpc(stub.Cancel(&context, request, &response));
  });
  if (!absl::IsFailedPrecondition(status)) return status;
  // An earlier try may have got through, and its answer been lost.
  const absl::StatusOr<v1::JobStatus> job = Get(job_id);
  return job.ok() && job->reason() == "Cancelled" ? absl::OkStatus() : status;
}

absl::Status JobClient::Suspend(const std::string& job_id) {
  v1::SuspendRequest request;
  request.set_job_id(job_id);
  v1::SuspendResponse response;
  int tries = 0;
  const absl::Status status = CallWithPatience([&](Stub& stub, grpc::ClientContext& context) {
    ++tries;
    return FromGrpc(stub.Suspend(&context, request, &response));
  });
  if (!absl::IsFailedPrecondition(status) || tries == 1) return status;
  // An earlier try may have got through, and its answer been lost.
  const absl::StatusOr<v1::JobStatus> job = Get(job_id);
  const bool suspended = job.ok() && (job->has_suspending() || job->state() == v1::SUSPENDED);
  return suspended ? absl::OkStatus() : status;
}

absl::Status JobClient::Resume(const std::string& job_id) {
  v1::ResumeRequest request;
  request.set_job_id(job_id);
  v1::ResumeResponse response;
  int tries = 0;
  const absl::Status status = CallWithPatience([&](Stub& stub, grpc::ClientContext& context) {
    ++tries;
    return FromGrpc(stub.Resume(&context, request, &response));
  });
  if (!absl::IsFailedPrecondition(status) || tries == 1) return status;
  const absl::StatusOr<v1::JobStatus> job = Get(job_id);
  const bool resumed = job.ok() && !HasEnded(job->state()) && !job->has_suspending() &&
                       job->state() != v1::SUSPENDED;
  return resumed ? absl::OkStatus() : status;
}

absl::StatusOr<v1::JobStatus> JobClient::AwaitSuspended(const std::string& job_id) {
  while (true) {
    TESSERA_ASSIGN_OR_RETURN(v1::JobStatus job, Get(job_id));
    if (job.state() == v1::SUSPENDED) return job;
    if (!job.has_suspending()) {
      const std::string event =
          job.events_size() == 0 ? "" : job.events(job.events_size() - 1).message();
      return absl::FailedPreconditionError(absl::StrCat(
          "job ", job_id,
          " is not suspended: ", HasEnded(job.state()) ? v1::JobState_Name(job.state()) : event));
    }
    if (!Sleep(kLookEvery)) return Interrupted();
  }
}

absl::StatusOr<uint32_t> JobClient::Scale(const v1::ScaleRequest& request) {
  v1::ScaleResponse response;
  const absl::Status status = CallWithPatience([&](Stub& stub, grpc::ClientContext& context) {
    return FromGrpc(stub.Scale(&context, request, &response));
  });
  if (!status.ok()) return status;
  return response.ps();
}

absl::StatusOr<v1::ClusterStatus> JobClient::GetCluster() {
  v1::ClusterStatus response;
  TESSERA_RETURN_IF_ERROR(CallWithPatience([&](Stub& stub, grpc::ClientContext& context) {
    return FromGrpc(stub.GetCluster(&context, v1::GetClusterRequest(), &response));
  }));
  return response;
}

absl::StatusOr<v1::JobStatus> JobClient::Watch(
    const std::string& job_id, const std::function<void(const v1::JobStatus&)>& on_status) {
  v1::WatchRequest request;
  request.set_job_id(job_id);
  v1::JobStatus last;
  while (true) {
    const absl::Status status =
        CallOnce(kStreamLimit, [&](Stub& stub, grpc::ClientContext& context) {
          const auto stream = stub.Watch(&context, request);
          v1::JobStatus next;
          while (stream->Read(&next)) {
            last = next;
            on_status(last);
            // The stream ends then; does not wait for a peer that keeps it open.
            if (HasEnded(last.state())) context.TryCancel();
          }
          return FromGrpc(stream->Finish());
        });
    if (HasEnded(last.state())) return last;
    if (!status.ok() && !IsRetryable(status)) return status;
    // Waits until the master answers again; finds out whether the job ended as the stream broke.
    absl::StatusOr<v1::JobStatus> now = Get(job_id);
    TESSERA_RETURN_IF_ERROR(now.status());
    if (HasEnded(now->state())) {
      on_status(*now);
      return now;
    }
    // Not a tight loop, even if each stream breaks at once.
    if (!Sleep(options_.backoff.first)) return Interrupted();
  }
}

}  // namespace tessera::client

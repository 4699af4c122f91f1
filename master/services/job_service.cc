#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/job/job_state.h"
#include "common/job/validate.h"
#include "common/rpc/status.h"
#include "common/status_macros.h"
#include "google/protobuf/util/message_differencer.h"
#include "master/services/services.h"

namespace tessera::master {
namespace {

// Commands wait for ten seconds in all, and should hear why.
constexpr absl::Duration kAnswersWithin = absl::Seconds(5);

constexpr absl::Duration kWatchGap = absl::Milliseconds(200);
constexpr absl::Duration kUnwrittenFor = absl::Seconds(1);

// Makes a job's end durable before anybody hears of it, so that no crash takes it back.
absl::Status MakeEndDurable(CoreHost* host, const v1::JobStatus& status) {
  if (!HasEnded(status.state())) return absl::OkStatus();
  const absl::Status durable = host->Flush(kAnswersWithin);
  if (durable.ok()) return durable;
  return absl::UnavailableError(absl::StrCat("job ", status.job_id(),
                                             " has ended, which is not "
                                             "durable yet: ",
                                             durable.message()));
}

// The answer to a change of a job: what `done` says, once that is durable. A refusal too, which may
// be of a call that is made again: its first try changed what is not durable yet.
grpc::Status OnceDurable(CoreHost* host, const absl::Status& done) {
  const absl::Status durable = host->Flush(kAnswersWithin);
  return ToGrpc(durable.ok() ? done : WithContext(durable, "the master cannot write its state"));
}

// The job's status, with the one wait that the core does not know of: for the state log.
absl::StatusOr<v1::JobStatus> StatusNow(CoreHost* host, const std::string& job_id) {
  absl::StatusOr<v1::JobStatus> status = host->UpdateQuietly(
      [&](MasterCore& core, const Now& now) { return core.GetJob(job_id, now); });
  const std::optional<CoreHost::Unwritten> unwritten = host->unwritten();
  if (status.ok() && unwritten.has_value() && unwritten->since > kUnwrittenFor &&
      !HasEnded(status->state())) {
    status->add_waits(
        absl::StrFormat("all wait for the master, which cannot write its state, "
                        "for %.0f s: %s",
                        absl::ToDoubleSeconds(unwritten->since), unwritten->why.message()));
  }
  return status;
}

}  // namespace

grpc::Status JobServiceImpl::Submit(grpc::ServerContext*, const v1::SubmitRequest* request,
                                    v1::SubmitResponse* response) {
  // Not under the core's lock: a large request takes a while.
  if (absl::Status status = ValidateSubmit(*request); !status.ok()) return ToGrpc(status);
  absl::StatusOr<std::string> id =
      host_->Update([&](MasterCore& core, const Now& now) { return core.Submit(*request, now); });
  if (!id.ok()) return ToGrpc(id.status());
  if (absl::Status status = host_->Flush(kAnswersWithin); !status.ok()) {
    // Not the log's code: who repeats the call would have the job twice.
    return ToGrpc(absl::UnknownError(
        absl::StrCat("job ", *id, " is taken, but not durable yet: ", status.message(),
                     "; it begins once it is, and `tessera list` says whether the master has it")));
  }
  response->set_job_id(*std::move(id));
  return grpc::Status::OK;
}

grpc::Status JobServiceImpl::Get(grpc::ServerContext*, const v1::GetRequest* request,
                                 v1::JobStatus* response) {
  absl::StatusOr<v1::JobStatus> status = StatusNow(host_, request->job_id());
  if (!status.ok()) return ToGrpc(status.status());
  if (absl::Status durable = MakeEndDurable(host_, *status); !durable.ok()) return ToGrpc(durable);
  *response = *std::move(status);
  return grpc::Status::OK;
}

grpc::Status JobServiceImpl::List(grpc::ServerContext*, const v1::ListRequest*,
                                  v1::ListResponse* response) {
  for (v1::JobStatus& status :
       host_->UpdateQuietly([&](MasterCore&core, const Now&now) { return core.ListJobs(now); })) {
    *response->add_jobs() = std::move(status);
  }
  return grpc::Status::OK;
}

grpc::Status JobServiceImpl::Watch(grpc::ServerContext* context, const v1::WatchRequest* request,
                                   grpc::ServerWriter<v1::JobStatus>* writer) {
  uint64_t seen = 0;
  std::optional<v1::JobStatus> sent;
  while (!context->IsCancelled()) {
    if (!host_->AwaitChange(&seen, absl::Seconds(1))) {
      return ToGrpc(absl::UnavailableError("the master stops; watch again when it is back"));
    }
    absl::StatusOr<v1::JobStatus> status = StatusNow(host_, request->job_id());
    if (!status.ok()) return ToGrpc(status.status());
    // The history only grows: it is sent once, with the end.
    if (!HasEnded(status->state())) status->clear_history();
    const bool news =
        !sent.has_value() || !google::protobuf::util::MessageDifferencer::Equals(*sent, *status);
    if (news) {
      absl::Status durable = MakeEndDurable(host_, *status);
      if (!durable.ok()) return ToGrpc(durable);
      if (!writer->Write(*status)) break;
      sent = *std::move(status);
      if (HasEnded(sent->state())) return grpc::Status::OK;
    }
    absl::SleepFor(kWatchGap);  // bounds the rate
  }
  return grpc::Status::CANCELLED;
}

grpc::Status JobServiceImpl::Cancel(grpc::ServerContext*, const v1::CancelRequest* request,
                                    v1::CancelResponse*) {
  const absl::Status status = host_->Update(
      [&](MasterCore& core, const Now& now) { return core.Cancel(request->job_id(), now); });
  return OnceDurable(host_, status);
}

grpc::Status JobServiceImpl::Suspend(grpc::ServerContext*, const v1::SuspendRequest* request,
                                     v1::SuspendResponse*) {
  const absl::Status status = host_->Update(
      [&](MasterCore& core, const Now& now) { return core.Suspend(request->job_id(), now); });
  return OnceDurable(host_, status);
}

grpc::Status JobServiceImpl::Resume(grpc::ServerContext*, const v1::ResumeRequest* request,
                                    v1::ResumeResponse*) {
  const absl::Status status = host_->Update(
      [&](MasterCore& core, const Now& now) { return core.Resume(request->job_id(), now); });
  return OnceDurable(host_, status);
}

grpc::Status JobServiceImpl::Scale(grpc::ServerContext*, const v1::ScaleRequest* request,
                                   v1::ScaleResponse* response) {
  const auto scaled =
      host_->Update([&](MasterCore& core, const Now& now) { return core.Scale(*request, now); });
  if (scaled.ok()) *response = *scaled;
  return OnceDurable(host_, scaled.status());
}

grpc::Status JobServiceImpl::GetCluster(grpc::ServerContext*, const v1::GetClusterRequest*,
                                        v1::ClusterStatus* response) {
  *response = host_->Read([](const MasterCore& core, const Now&) { return core.Cluster(); });
  return grpc::Status::OK;
}

}  // namespace tessera::master

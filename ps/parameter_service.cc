#include "ps/parameter_service.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "common/rpc/status.h"
#include "common/status_macros.h"
#include "grpcpp/server_context.h"

namespace tessera::ps {
namespace {

constexpr absl::Duration kExpireEvery = absl::Milliseconds(20);
constexpr absl::Duration kLongestMargin = absl::Milliseconds(200);

absl::Status CheckCancelled(const grpc::CallbackServerContext& context) {
  return context.IsCancelled() ? absl::CancelledError("the caller has hung up") : absl::OkStatus();
}

// Runs `work`, a function to absl::Status, as a task that finishes the call. `observe` is told the
// status before the caller is.
template <typename Work, typename Observe>
grpc::ServerUnaryReactor* RunAs(Executor& executor, grpc::CallbackServerContext& context,
                                uint64_t bytes, Observe observe, Work work) {
  grpc::ServerUnaryReactor* const reactor = context.DefaultReactor();
  const auto finish = [reactor, observe = std::move(observe)](const absl::Status& status) {
    observe(status);
    reactor->Finish(ToGrpc(status));
  };
  const absl::Status queued =
      executor.Submit(bytes, [finish, work = std::move(work)]() mutable { finish(work()); });
  if (!queued.ok()) finish(queued);
  return reactor;
}

}  // namespace

ParameterService::ParameterService(const Options& options)
    : options_(options), expirer_([this] { ExpireWaits(); }) {}

ParameterService::~ParameterService() {
  {
    absl::MutexLock lock(&mu_);
    ending_ = true;
  }
  expirer_.join();
}

void ParameterService::ExpireWaits() {
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      if (mu_.AwaitWithTimeout(absl::Condition(&ending_), kExpireEvery)) return;
    }
    for (const auto& shard : options_.jobs->All()) shard->Expire();
  }
}

absl::Duration ParameterService::Deadline(const grpc::CallbackServerContext& context) const {
  const absl::Duration left = absl::FromChrono(context.deadline()) - absl::Now();
  const absl::Duration margin = std::min(kLongestMargin, left / 10);
  return options_.clock->Monotonic() + std::min(left - margin, options_.max_wait);
}

std::function<void(const absl::Status&)> ParameterService::Refusals(const char* call) const {
  return [this, call](const absl::Status& status) { options_.metrics->Answered(call, status); };
}

grpc::ServerUnaryReactor* ParameterService::Pull(grpc::CallbackServerContext* context,
                                                 const v1::PullRequest* request,
                                                 v1::PullResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::Duration deadline = Deadline(*context);
  const absl::Duration start = options_.clock->Monotonic();
  const auto finish = [=, this](const absl::Status& status) {
    options_.metrics->Pulled(*request, *response, status, options_.clock->Monotonic() - start);
    reactor->Finish(ToGrpc(status));
  };
  const absl::Status queued = options_.requests->Submit(request->ByteSizeLong(), [=, this] {
    auto shard = options_.jobs->Find(request->header().job_id(), request->header().generation());
    if (!shard.ok()) return finish(shard.status());
    JobShard& job = **shard;
    job.Pull(request, response, deadline,
             [finish, keep = *std::move(shard)](absl::Status status) { finish(status); });
  });
  if (!queued.ok()) finish(queued);
  return reactor;
}

grpc::ServerUnaryReactor* ParameterService::Push(grpc::CallbackServerContext* context,
                                                 const v1::PushRequest* request,
                                                 v1::PushResponse*) {
  const absl::Duration start = options_.clock->Monotonic();
  const auto observe = [=, this](const absl::Status& status) {
    options_.metrics->Pushed(*request, status, options_.clock->Monotonic() - start);
  };
  return RunAs(
      *options_.requests, *context, request->ByteSizeLong(), observe, [=, this]() -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(
            const auto shard,
            options_.jobs->Find(request->header().job_id(), request->header().generation()));
        return shard->Push(*request);
      });
}

grpc::ServerUnaryReactor* ParameterService::Assign(grpc::CallbackServerContext* context,
                                                   const v1::AssignRequest* request,
                                                   v1::AssignResponse*) {
  return RunAs(*options_.requests, *context, request->ByteSizeLong(), Refusals("Assign"),
               [=, this]() -> absl::Status {
                 TESSERA_ASSIGN_OR_RETURN(const auto shard,
                                          options_.jobs->Find(request->header().job_id(),
                                                              request->header().generation()));
                 return shard->Assign(*request);
               });
}

grpc::ServerUnaryReactor* ParameterService::OpenJob(grpc::CallbackServerContext* context,
                                                    const v1::OpenJobRequest* request,
                                                    v1::OpenJobResponse* response) {
  return RunAs(*options_.administration, *context, request->ByteSizeLong(), Refusals("OpenJob"),
               [=, this]() -> absl::Status {
                 const auto keep_going = [context] { return CheckCancelled(*context); };
                 TESSERA_ASSIGN_OR_RETURN(const auto shard,
                                          options_.jobs->Open(*request, keep_going));
                 response->set_rows(shard->rows());
                 return absl::OkStatus();
               });
}

grpc::ServerUnaryReactor* ParameterService::CloseJob(grpc::CallbackServerContext* context,
                                                     const v1::CloseJobRequest* request,
                                                     v1::CloseJobResponse*) {
  return RunAs(
      *options_.administration, *context, request->ByteSizeLong(), Refusals("CloseJob"),
      [=, this] { return options_.jobs->Close(request->job_id(), request->generation()); });
}

grpc::ServerUnaryReactor* ParameterService::WriteCheckpoint(
    grpc::CallbackServerContext* context, const v1::WriteCheckpointRequest* request,
    v1::WriteCheckpointResponse* response) {
  const absl::Duration deadline = Deadline(*context);
  const absl::Duration start = options_.clock->Monotonic();
  const auto observe = [=, this](const absl::Status& status) {
    options_.metrics->WroteCheckpoint(*response, status, options_.clock->Monotonic() - start);
  };
  return RunAs(
      *options_.administration, *context, request->ByteSizeLong(), observe,
      [=, this]() -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(const auto shard,
                                 options_.jobs->Find(request->job_id(), request->generation()));
        const auto keep_going = [context] { return CheckCancelled(*context); };
        TESSERA_ASSIGN_OR_RETURN(*response, shard->WriteCheckpoint(*request, deadline, keep_going));
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* ParameterService::GetStats(grpc::CallbackServerContext* context,
                                                     const v1::GetStatsRequest* request,
                                                     v1::StatsResponse* response) {
  return RunAs(*options_.requests, *context, request->ByteSizeLong(), Refusals("GetStats"),
               [=, this]() -> absl::Status {
                 TESSERA_ASSIGN_OR_RETURN(const auto shard, options_.jobs->Find(request->job_id()));
                 *response = shard->Stats(request->expiry_dry_run());
                 return absl::OkStatus();
               });
}

}  // namespace tessera::ps

#include "ps/service/parameter_service.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "common/failpoint.h"
#include "common/rpc/status.h"
#include "common/status_macros.h"
#include "grpcpp/server_context.h"
#include "ps/calls/call_frames.h"
#include "ps/calls/shared_calls.h"
#include "ps/memory/or_exhausted.h"
#include "ps/service/partition_fetch.h"
#include "ps/service/pull_calls.h"
#include "ps/service/read_call.h"
#include "ps/service/run_call.h"

namespace tessera::ps {
namespace {

constexpr absl::Duration kExpireEvery = absl::Milliseconds(20);
constexpr absl::Duration kDropRegionsEvery = absl::Seconds(1);
constexpr absl::Duration kLongestMargin = absl::Milliseconds(200);
// Longest wait of pulls and cuts, whatever their callers allow.
constexpr absl::Duration kLongestWait = absl::Minutes(1);
// Share of the time for the first round of bringing rows from other ps, which is of all rows.
constexpr double kFetchShare = 0.1;
// Longest wait of ReadLog while no record comes.
constexpr absl::Duration kLongestRead = absl::Seconds(1);

absl::Status CheckCancelled(const grpc::CallbackServerContext& context) {
  return context.IsCancelled() ? absl::CancelledError("the caller has hung up") : absl::OkStatus();
}

}  // namespace

ParameterService::ParameterService(const Options& options)
    : options_(options),
      followers_(options.jobs, options.channels),
      expirer_([this] { RunExpirer(); }) {}

ParameterService::~ParameterService() {
  {
    absl::MutexLock lock(&mu_);
    ending_ = true;
  }
  expirer_.join();
}

void ParameterService::RunExpirer() {
  absl::Duration dropped = options_.clock->Monotonic();
  const auto look = [&]() -> absl::Status {
    for (const auto& shard : options_.jobs->All()) shard->Expire();
    const absl::Duration now = options_.clock->Monotonic();
    if (now - dropped < kDropRegionsEvery) return absl::OkStatus();
    dropped = now;
    options_.regions->DropAbandoned();
    return absl::OkStatus();
  };
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      if (mu_.AwaitWithTimeout(absl::Condition(&ending_), kExpireEvery)) return;
    }
    // Calls for which there was no memory wait for the next look.
    OrExhausted("calls that have waited for too long", look).IgnoreError();
  }
}

absl::Duration ParameterService::Deadline(const grpc::CallbackServerContext& context,
                                          absl::Duration longest) const {
  const absl::Duration left = absl::FromChrono(context.deadline()) - absl::Now();
  const absl::Duration margin = std::min(kLongestMargin, left / 10);
  return options_.clock->Monotonic() + std::min(left - margin, longest);
}

std::function<void(const absl::Status&)> ParameterService::Refusals(const char* call) const {
  return [this, call](const absl::Status& status) { options_.metrics->Answered(call, status); };
}

grpc::ServerUnaryReactor* ParameterService::Pull(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer* request,
                                                 grpc::ByteBuffer* response) {
  return RunPull(options_, Deadline(*context, kLongestWait), *request, response);
}

grpc::ServerUnaryReactor* ParameterService::LookAhead(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request,
                                                      grpc::ByteBuffer* response) {
  return Run(*options_.ahead, *context, request->Length(), Refusals("LookAhead"),
             [=, this]() -> absl::Status {
               *response = grpc::ByteBuffer(nullptr, 0);  // LookAheadResponse has no fields
               TESSERA_RETURN_IF_ERROR(CheckCancelled(*context));
               TESSERA_ASSIGN_OR_RETURN(const PullCall call, ReadCall(*request, ReadPull));
               const v1::CallHeader& header = call.request.header();
               TESSERA_ASSIGN_OR_RETURN(const auto shard,
                                        options_.jobs->Find(header.job_id(), header.generation()));
               return shard->LookAhead(call);
             });
}

grpc::ServerUnaryReactor* ParameterService::Push(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer* request,
                                                 grpc::ByteBuffer* response) {
  const absl::Duration start = options_.clock->Monotonic();
  struct Taken {
    uint64_t keys = 0;
    uint64_t shared_bytes = 0;
  };
  const auto taken = std::make_shared<Taken>();
  const auto observe = [=, this](const absl::Status& status) {
    if (status.ok()) options_.metrics->PushedShared(taken->shared_bytes);
    options_.metrics->Pushed(taken->keys, request->Length(), status,
                             options_.clock->Monotonic() - start);
  };
  return RunReplicated(*options_.requests, *context, request->Length(), observe,
                       [=, this]() -> absl::StatusOr<std::shared_ptr<JobShard>> {
                         TESSERA_ASSIGN_OR_RETURN(PushCall call, ReadCall(*request, ReadPush));
                         const v1::CallHeader& header = call.request.header();
                         TESSERA_ASSIGN_OR_RETURN(
                             auto shard, options_.jobs->Find(header.job_id(), header.generation()));
                         const auto take = [&] {
                           return TakeShared(*options_.regions, shard->has_push_log(), call);
                         };
                         TESSERA_ASSIGN_OR_RETURN(taken->shared_bytes, ReadShared(take));
                         for (const Bulk& block : call.keys) {
                           taken->keys += block.size() / sizeof(uint64_t);
                         }
                         TESSERA_RETURN_IF_ERROR(shard->Push(std::move(call)));
                         PassFailpoint("ps.push.answer");
                         *response = grpc::ByteBuffer(nullptr, 0);  // PushResponse has no fields
                         return shard;
                       });
}

grpc::ServerUnaryReactor* ParameterService::GetProgress(grpc::CallbackServerContext* context,
                                                        const v1::ProgressRequest* request,
                                                        v1::ProgressResponse* response) {
  // Replicated: nobody pushes again what the answer says is here, so the follower must not lack it.
  return RunReplicated(
      *options_.requests, *context, request->ByteSizeLong(), Refusals("GetProgress"),
      [=, this]() -> absl::StatusOr<std::shared_ptr<JobShard>> {
        TESSERA_ASSIGN_OR_RETURN(auto shard, options_.jobs->Find(request->header().job_id(),
                                                                 request->header().generation()));
        TESSERA_ASSIGN_OR_RETURN(*response, shard->GetProgress(*request));
        return shard;
      });
}

grpc::ServerUnaryReactor* ParameterService::ShareMemory(grpc::CallbackServerContext* context,
                                                        const v1::ShareMemoryRequest* request,
                                                        v1::ShareMemoryResponse* response) {
  return Run(*options_.administration, *context, request->ByteSizeLong(), Refusals("ShareMemory"),
             [=, this]() -> absl::Status {
               TESSERA_ASSIGN_OR_RETURN(const uint64_t region, options_.regions->Accept(*request));
               response->set_region(region);
               return absl::OkStatus();
             });
}

grpc::ServerUnaryReactor* ParameterService::Assign(grpc::CallbackServerContext* context,
                                                   const v1::AssignRequest* request,
                                                   v1::AssignResponse*) {
  return RunReplicated(*options_.requests, *context, request->ByteSizeLong(), Refusals("Assign"),
                       [=, this]() -> absl::StatusOr<std::shared_ptr<JobShard>> {
                         TESSERA_ASSIGN_OR_RETURN(
                             auto shard, options_.jobs->Find(request->header().job_id(),
                                                             request->header().generation()));
                         TESSERA_RETURN_IF_ERROR(shard->Assign(*request));
                         return shard;
                       });
}

grpc::ServerUnaryReactor* ParameterService::OpenJob(grpc::CallbackServerContext* context,
                                                    const v1::OpenJobRequest* request,
                                                    v1::OpenJobResponse* response) {
  return RunMeant(*options_.row_work, *options_.jobs, *context, request, Refusals("OpenJob"),
                  [=, this]() -> absl::Status {
                    if (!request->follow().empty()) return followers_.Follow(*request);
                    const auto keep_going = [context] { return CheckCancelled(*context); };
                    TESSERA_ASSIGN_OR_RETURN(const auto shard,
                                             options_.jobs->Open(*request, keep_going));
                    response->set_rows(shard->rows());
                    if (request->take_over() > 0) {
                      // In a task, because it takes time and nobody should wait for it.
                      options_.row_work->Run([shard] { shard->FinishTakeOver(); });
                    }
                    return absl::OkStatus();
                  });
}

grpc::ServerUnaryReactor* ParameterService::SetFollower(grpc::CallbackServerContext* context,
                                                        const v1::SetFollowerRequest* request,
                                                        v1::SetFollowerResponse*) {
  return RunMeant(*options_.administration, *options_.jobs, *context, request,
                  Refusals("SetFollower"), [=, this]() -> absl::Status {
                    TESSERA_ASSIGN_OR_RETURN(
                        const auto shard,
                        options_.jobs->Find(request->job_id(), request->generation()));
                    return shard->SetFollower(request->pair(), request->follower());
                  });
}

grpc::ServerUnaryReactor* ParameterService::ReadLog(grpc::CallbackServerContext* context,
                                                    const v1::ReadLogRequest* request,
                                                    v1::ReadLogResponse* response) {
  return RunAsync(
      *options_.requests, *context, request->ByteSizeLong(), Refusals("ReadLog"),
      [=, this](const auto& finish) {
        const auto read = [&]() -> absl::Status {
          TESSERA_ASSIGN_OR_RETURN(auto shard,
                                   options_.jobs->Find(request->job_id(), request->generation()));
          JobShard& job = *shard;
          job.ReadLog(*request, options_.clock->Monotonic() + kLongestRead,
                      [=, keep = std::move(shard)](absl::StatusOr<v1::ReadLogResponse> records) {
                        if (records.ok()) *response = *std::move(records);
                        finish(records.status());
                      });
          return absl::OkStatus();
        };
        // After an error nothing else finishes the call.
        if (const absl::Status begun = OrExhausted("the call", read); !begun.ok()) {
          finish(begun);
        }
      });
}

grpc::ServerUnaryReactor* ParameterService::CloseJob(grpc::CallbackServerContext* context,
                                                     const v1::CloseJobRequest* request,
                                                     v1::CloseJobResponse*) {
  return Run(*options_.administration, *context, request->ByteSizeLong(), Refusals("CloseJob"),
             [=, this] { return options_.jobs->Close(request->job_id(), request->generation()); });
}

grpc::ServerUnaryReactor* ParameterService::WriteCheckpoint(
    grpc::CallbackServerContext* context, const v1::WriteCheckpointRequest* request,
    v1::WriteCheckpointResponse* response) {
  const auto phase = request->phase();
  // Only a cut waits; a writer takes as long as its caller allows.
  const bool writes = phase == v1::WriteCheckpointRequest::WRITE;
  const absl::Duration deadline =
      Deadline(*context, writes ? absl::InfiniteDuration() : kLongestWait);
  const absl::Duration start = options_.clock->Monotonic();
  const auto observe = [=, this](const absl::Status& status) {
    const absl::Duration took = options_.clock->Monotonic() - start;
    switch (phase) {
      case v1::WriteCheckpointRequest::CUT:
        return options_.metrics->CutCheckpoint(status, took);
      case v1::WriteCheckpointRequest::WRITE:
      case v1::WriteCheckpointRequest::CUT_AND_WRITE:
        return options_.metrics->WroteCheckpoint(*response, status, took);
      default:
        return options_.metrics->Answered("WriteCheckpoint", status);
    }
  };
  const auto work = [=, this]() -> absl::StatusOr<std::shared_ptr<JobShard>> {
    TESSERA_RETURN_IF_ERROR(CheckCancelled(*context));
    TESSERA_RETURN_IF_ERROR(options_.jobs->CheckMeant(request->ps_process()));
    TESSERA_ASSIGN_OR_RETURN(auto shard,
                             options_.jobs->Find(request->job_id(), request->generation()));
    const auto keep_going = [context] { return CheckCancelled(*context); };
    TESSERA_ASSIGN_OR_RETURN(*response, shard->WriteCheckpoint(*request, deadline, keep_going));
    return shard;
  };
  TaskQueue& queue = JobShard::Writes(phase) ? *options_.row_work : *options_.administration;
  return RunAsync(queue, *context, request->ByteSizeLong(), observe, [=](const auto& finish) {
    absl::StatusOr<std::shared_ptr<JobShard>> shard = OrExhausted("the call", work);
    if (!shard.ok() || !(*shard)->IsReplicated(*request)) {
      return finish(shard.status());
    }
    // Once it is committed, a follower's log is asked for what came after this cut.
    FinishReplicated(*std::move(shard), finish);
  });
}

grpc::ServerUnaryReactor* ParameterService::GetStats(grpc::CallbackServerContext* context,
                                                     const v1::GetStatsRequest* request,
                                                     v1::StatsResponse* response) {
  TaskQueue& queue = request->expiry_dry_run() ? *options_.row_work : *options_.requests;
  return Run(
      queue, *context, request->ByteSizeLong(), Refusals("GetStats"), [=, this]() -> absl::Status {
        const Jobs& jobs = *options_.jobs;
        TESSERA_ASSIGN_OR_RETURN(const auto shard,
                                 request->has_generation()
                                     ? jobs.Find(request->job_id(), request->generation())
                                     : jobs.Find(request->job_id()));
        *response = shard->Stats();
        return request->expiry_dry_run() ? shard->CountExpirable(*response) : absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* ParameterService::WeighPartitions(
    grpc::CallbackServerContext* context, const v1::WeighPartitionsRequest* request,
    v1::WeighPartitionsResponse* response) {
  return RunMeant(*options_.administration, *options_.jobs, *context, request,
                  Refusals("WeighPartitions"), [=, this]() -> absl::Status {
                    TESSERA_ASSIGN_OR_RETURN(
                        const auto shard,
                        options_.jobs->Find(request->job_id(), request->generation()));
                    *response = shard->WeighPartitions();
                    return absl::OkStatus();
                  });
}

grpc::ServerUnaryReactor* ParameterService::FetchPartitions(
    grpc::CallbackServerContext* context, const v1::FetchPartitionsRequest* request,
    v1::FetchPartitionsResponse* response) {
  TaskQueue& queue = request->drop() ? *options_.administration : *options_.row_work;
  return RunMeant(
      queue, *options_.jobs, *context, request, Refusals("FetchPartitions"),
      [=, this]() -> absl::Status {
        const v1::OpenJobRequest& open = request->open();
        if (request->drop()) {
          options_.jobs->DropStaged(open.job_id(), open.generation(), open.move());
          return absl::OkStatus();
        }
        TESSERA_RETURN_IF_ERROR(CheckCancelled(*context));
        TESSERA_ASSIGN_OR_RETURN(const auto staged,
                                 options_.jobs->Stage(open, request->changed(), [context] {
                                   return CheckCancelled(*context);
                                 }));
        const double share = request->changed() ? 1 : kFetchShare;
        TESSERA_ASSIGN_OR_RETURN(
            *response, FetchPartitionsInto(*request, *context, *options_.channels, share, *staged));
        return absl::OkStatus();
      });
}

grpc::ServerWriteReactor<v1::RowChunk>* ParameterService::ReadPartitions(
    grpc::CallbackServerContext*, const v1::ReadPartitionsRequest* request) {
  const absl::Status meant = options_.jobs->CheckMeant(request->ps_process());
  return NewRowSender(*request,
                      meant.ok() ? options_.jobs->Find(request->job_id(), request->generation())
                                 : absl::StatusOr<std::shared_ptr<JobShard>>(meant),
                      options_.requests);
}

}  // namespace tessera::ps

#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/rpc/status.h"
#include "common/status_macros.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "ps/jobs/job_shard.h"
#include "ps/jobs/jobs.h"
#include "ps/memory/or_exhausted.h"
#include "ps/service/task_queue.h"

// How calls of the service run: as tasks of a queue, which refuses one when `bytes` more are too
// many for it. Each returns the reactor of the call, which is finished once, with the work's
// status; `observe` is told that status before the caller is. What a call of `work` needs lives
// until then.
namespace tessera::ps {

// `work` is handed a function from absl::Status that finishes the call, to be called once, in this
// task or later.
template <typename Work, typename Observe>
grpc::ServerUnaryReactor* RunAsync(TaskQueue& queue, grpc::CallbackServerContext& context,
                                   uint64_t bytes, Observe observe, Work work,
                                   TaskQueue::MayWait waits = TaskQueue::MayWait::kNo) {
  grpc::ServerUnaryReactor* const reactor = context.DefaultReactor();
  const auto finish = [reactor, observe = std::move(observe)](const absl::Status& status) {
    observe(status);
    reactor->Finish(ToGrpc(status));
  };
  const absl::Status queued = queue.Submit(
      bytes, [finish, work = std::move(work)]() mutable { work(finish); }, waits);
  if (!queued.ok()) finish(queued);
  return reactor;
}

// As RunAsync, for a `work` that is done when it returns: it returns absl::Status.
template <typename Work, typename Observe>
grpc::ServerUnaryReactor* Run(TaskQueue& queue, grpc::CallbackServerContext& context,
                              uint64_t bytes, Observe observe, Work work) {
  return RunAsync(queue, context, bytes, std::move(observe),
                  [work = std::move(work)](const auto& finish) mutable {
                    finish(OrExhausted("the call", work));
                  });
}

// As Run, for a call with a `ps_process`: done only if this is the process that is meant.
template <typename Request, typename Work, typename Observe>
grpc::ServerUnaryReactor* RunMeant(TaskQueue& queue, const Jobs& jobs,
                                   grpc::CallbackServerContext& context, const Request* request,
                                   Observe observe, Work work) {
  return Run(queue, context, request->ByteSizeLong(), std::move(observe),
             [&jobs, request, work = std::move(work)]() mutable -> absl::Status {
               TESSERA_RETURN_IF_ERROR(jobs.CheckMeant(request->ps_process()));
               return work();
             });
}

// Finishes a call when a follower, too, has what the shard's push log has by now.
template <typename Finish>
void FinishReplicated(std::shared_ptr<JobShard> shard, const Finish& finish) {
  JobShard& job = *shard;
  job.AwaitFollower([finish, keep = std::move(shard)](const absl::Status& s) { finish(s); });
}

// Runs a call whose effect must be in the push log, and with a follower, before the call is
// answered; `work` returns the shard.
template <typename Work, typename Observe>
grpc::ServerUnaryReactor* RunReplicated(TaskQueue& queue, grpc::CallbackServerContext& context,
                                        uint64_t bytes, Observe observe, Work work) {
  return RunAsync(
      queue, context, bytes, std::move(observe),
      [work = std::move(work)](const auto& finish) mutable {
        absl::StatusOr<std::shared_ptr<JobShard>> shard = OrExhausted("the call", work);
        if (!shard.ok()) return finish(shard.status());
        FinishReplicated(*std::move(shard), finish);
      },
      TaskQueue::MayWait::kForDisk);
}

}  // namespace tessera::ps

#pragma once

#include <cstdint>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/rpc/channels.h"
#include "ps/calls/shared_regions.h"
#include "ps/jobs/jobs.h"
#include "ps/jobs/log_follower.h"
#include "ps/service/ps_metrics.h"
#include "ps/service/task_queue.h"
#include "tessera/v1/parameter_service.grpc.pb.h"

namespace tessera::ps {

// Pull, LookAhead and Push take and answer gRPC's raw bytes, the other methods messages.
using ParameterServiceBase = v1::ParameterService::WithRawCallbackMethod_Pull<
    v1::ParameterService::WithRawCallbackMethod_LookAhead<
        v1::ParameterService::WithRawCallbackMethod_Push<
            v1::ParameterService::WithCallbackMethod_Assign<
                v1::ParameterService::WithCallbackMethod_OpenJob<
                    v1::ParameterService::WithCallbackMethod_CloseJob<
                        v1::ParameterService::WithCallbackMethod_WriteCheckpoint<
                            v1::ParameterService::WithCallbackMethod_GetStats<
                                v1::ParameterService::WithCallbackMethod_GetProgress<
                                    v1::ParameterService::WithCallbackMethod_FetchPartitions<
                                        v1::ParameterService::WithCallbackMethod_ReadPartitions<
                                            v1::ParameterService::WithCallbackMethod_SetFollower<
                                                v1::ParameterService::WithCallbackMethod_ReadLog<
                                                    v1::ParameterService::
                                                        WithCallbackMethod_WeighPartitions<
                                                            v1::ParameterService::
                                                                WithCallbackMethod_ShareMemory<
                                                                    v1::ParameterService::
                                                                        Service>>>>>>>>>>>>>>>;

// Serves Jobs over gRPC: every call becomes a task of a queue, and a pull that has to wait for
// a step holds no thread. Owns one thread, which answers pulls whose deadline has come and gives up
// the shared memory of workers that have gone.
//
// Thread-safe. Destroyed after the server that serves it has shut down.
class ParameterService final : public ParameterServiceBase {
 public:
  struct Options {
    // All borrowed; they outlive the service.
    Jobs* jobs = nullptr;
    TaskQueue* requests = nullptr;        // for workers' calls
    TaskQueue* ahead = nullptr;           // for workers' calls that nobody waits for
    TaskQueue* administration = nullptr;  // for the master's calls
    TaskQueue* row_work = nullptr;  // for those that load, write or fetch rows: for hours even
    const Clock* clock = nullptr;
    PsMetrics* metrics = nullptr;
    Channels* channels = nullptr;  // to other ps
    SharedRegions* regions = nullptr;
    // Whether rows may be on disk: then no pull is answered in gRPC's own thread.
    bool pulls_may_block = false;
  };
  explicit ParameterService(const Options& options);
  ~ParameterService() override;

  grpc::ServerUnaryReactor* Pull(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* LookAhead(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Push(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetProgress(grpc::CallbackServerContext* context,
                                        const v1::ProgressRequest* request,
                                        v1::ProgressResponse* response) override;
  grpc::ServerUnaryReactor* ShareMemory(grpc::CallbackServerContext* context,
                                        const v1::ShareMemoryRequest* request,
                                        v1::ShareMemoryResponse* response) override;
  grpc::ServerUnaryReactor* Assign(grpc::CallbackServerContext* context,
                                   const v1::AssignRequest* request,
                                   v1::AssignResponse* response) override;
  grpc::ServerUnaryReactor* OpenJob(grpc::CallbackServerContext* context,
                                    const v1::OpenJobRequest* request,
                                    v1::OpenJobResponse* response) override;
  grpc::ServerUnaryReactor* CloseJob(grpc::CallbackServerContext* context,
                                     const v1::CloseJobRequest* request,
                                     v1::CloseJobResponse* response) override;
  grpc::ServerUnaryReactor* WriteCheckpoint(grpc::CallbackServerContext* context,
                                            const v1::WriteCheckpointRequest* request,
                                            v1::WriteCheckpointResponse* response) override;
  grpc::ServerUnaryReactor* GetStats(grpc::CallbackServerContext* context,
                                     const v1::GetStatsRequest* request,
                                     v1::StatsResponse* response) override;
  grpc::ServerUnaryReactor* FetchPartitions(grpc::CallbackServerContext* context,
                                            const v1::FetchPartitionsRequest* request,
                                            v1::FetchPartitionsResponse* response) override;
  grpc::ServerWriteReactor<v1::RowChunk>* ReadPartitions(
      grpc::CallbackServerContext* context, const v1::ReadPartitionsRequest* request) override;
  grpc::ServerUnaryReactor* WeighPartitions(grpc::CallbackServerContext* context,
                                            const v1::WeighPartitionsRequest* request,
                                            v1::WeighPartitionsResponse* response) override;
  grpc::ServerUnaryReactor* SetFollower(grpc::CallbackServerContext* context,
                                        const v1::SetFollowerRequest* request,
                                        v1::SetFollowerResponse* response) override;
  grpc::ServerUnaryReactor* ReadLog(grpc::CallbackServerContext* context,
                                    const v1::ReadLogRequest* request,
                                    v1::ReadLogResponse* response) override;

 private:
  // When to give up a call, by Clock::Monotonic: a little before the caller hangs up, so that it
  // learns what was waited for, and after `longest` in any case.
  absl::Duration Deadline(const grpc::CallbackServerContext& context, absl::Duration longest) const;
  // Counts the errors of a call for which there are no other metrics.
  std::function<void(const absl::Status&)> Refusals(const char* call) const;
  void RunExpirer() ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  Followers followers_;
  absl::Mutex mu_;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread expirer_;  // constant after construction
};

}  // namespace tessera::ps

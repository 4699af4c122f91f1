#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/rpc/channels.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "ps/jobs/job_shard.h"
#include "ps/service/task_queue.h"
#include "tessera/v1/parameter_service.pb.h"

// Rows on their way from one ps to another: both ends of ParameterService.ReadPartitions.
namespace tessera::ps {

// Brings the rows that the request names into `staged`, one source after the other. Rests between,
// so that it works for `share` of the time. Ends when `caller`, the call that asked for it, does.
// An error names the source.
absl::StatusOr<v1::FetchPartitionsResponse> FetchPartitionsInto(
    const v1::FetchPartitionsRequest& request, const grpc::CallbackServerContext& caller,
    Channels& channels, double share, JobShard& staged);

// Sends the rows that the request names, in messages of about 1 MiB. Threads of `queue`, which
// outlives the call, make each message when the last one is taken. Deletes itself.
grpc::ServerWriteReactor<v1::RowChunk>* NewRowSender(
    const v1::ReadPartitionsRequest& request, absl::StatusOr<std::shared_ptr<JobShard>> shard,
    TaskQueue* queue);

}  // namespace tessera::ps

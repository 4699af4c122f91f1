#include "ps/service/pull_calls.h"

#include <cstdint>
#include <utility>

#include "common/rpc/status.h"
#include "ps/calls/call_frames.h"
#include "ps/calls/inline_pull.h"
#include "ps/calls/shared_calls.h"
#include "ps/memory/byte_budget.h"
#include "ps/memory/or_exhausted.h"
#include "ps/service/read_call.h"

namespace tessera::ps {
namespace {

// Keeps an answer counted until gRPC has sent it, and tells the metrics. Deletes itself.
class PullReactor final : public grpc::ServerUnaryReactor {
 public:
  PullReactor(const ParameterService::Options& options, uint64_t request_bytes)
      : options_(options), request_bytes_(request_bytes), start_(options.clock->Monotonic()) {}

  // Bytes of the call's bulk in shared memory.
  void SetShared(uint64_t bytes) { shared_bytes_ = bytes; }
  void Answer(const RowCounts& counts, uint64_t bytes, ByteBudget::Hold unsent) {
    unsent_ = std::move(unsent);
    options_.metrics->PulledShared(shared_bytes_);
    options_.metrics->Pulled(counts, request_bytes_, bytes, options_.clock->Monotonic() - start_);
    Finish(grpc::Status::OK);
  }
  void Answer(const absl::Status& error) {
    options_.metrics->Answered("Pull", error);
    Finish(ToGrpc(error));
  }

 private:
  void OnDone() override { delete this; }

  const ParameterService::Options& options_;
  const uint64_t request_bytes_;
  const absl::Duration start_;
  uint64_t shared_bytes_ = 0;
  ByteBudget::Hold unsent_;
};

void PullNow(const ParameterService::Options& options, PullCall call, grpc::ByteBuffer* response,
             absl::Duration deadline, PullReactor* reactor) {
  const absl::StatusOr<uint64_t> shared =
      ReadShared([&] { return TakeShared(*options.regions, call); });
  if (!shared.ok()) return reactor->Answer(shared.status());
  reactor->SetShared(*shared);
  const v1::CallHeader& header = call.request.header();
  auto shard = options.jobs->Find(header.job_id(), header.generation());
  if (!shard.ok()) {
    reactor->Answer(shard.status());
    return;
  }
  JobShard& job = **shard;
  job.Pull(std::move(call), deadline,
           [reactor, response, keep = *std::move(shard)](absl::StatusOr<PullAnswer> answer) {
             if (!answer.ok()) return reactor->Answer(answer.status());
             const RowCounts counts = answer->counts;
             ByteBudget::Hold unsent = std::move(answer->unsent);
             const absl::Status written = OrExhausted("an answer", [&] {
               *response = WriteAnswer(*std::move(answer));
               return absl::OkStatus();
             });
             if (!written.ok()) return reactor->Answer(written);
             reactor->Answer(counts, response->Length(), std::move(unsent));
           });
}

}  // namespace

grpc::ServerUnaryReactor* RunPull(const ParameterService::Options& options, absl::Duration deadline,
                                  const grpc::ByteBuffer& request, grpc::ByteBuffer* response) {
  const uint64_t bytes = request.Length();
  auto* const reactor = new PullReactor(options, bytes);
  const auto read_and_pull = [=, &options, &request](bool here) {
    absl::StatusOr<PullCall> call = ReadCall(request, ReadPull);
    if (!call.ok()) return reactor->Answer(call.status());
    // A call that is small only because its keys are in shared memory takes as long as any other.
    if (!here || !call->request.has_shared()) {
      return PullNow(options, *std::move(call), response, deadline, reactor);
    }
    const absl::Status queued =
        options.requests->Submit(bytes, [=, &options, call = *std::move(call)]() mutable {
          PullNow(options, std::move(call), response, deadline, reactor);
        });
    if (!queued.ok()) reactor->Answer(queued);
  };
  if (bytes <= kInlinePullBytes && !options.pulls_may_block) {
    read_and_pull(/*here=*/true);
    return reactor;
  }
  const absl::Status queued =
      options.requests->Submit(bytes, [read_and_pull] { read_and_pull(/*here=*/false); });
  if (!queued.ok()) reactor->Answer(queued);
  return reactor;
}

}  // namespace tessera::ps

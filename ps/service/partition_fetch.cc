#include "ps/service/partition_fetch.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/rpc/status.h"
#include "common/status_macros.h"
#include "grpcpp/client_context.h"
#include "ps/jobs/row_source.h"
#include "ps/jobs/writer_rest.h"
#include "ps/memory/or_exhausted.h"
#include "tessera/v1/parameter_service.grpc.pb.h"

namespace tessera::ps {
namespace {

constexpr absl::string_view kWhat = "rows that are handed out";
// Longest wait until steps that all ranks have pushed are applied.
constexpr absl::Duration kLongestBarrier = absl::Seconds(5);

class RowSender final : public grpc::ServerWriteReactor<v1::RowChunk> {
 public:
  RowSender(const v1::ReadPartitionsRequest& request,
            absl::StatusOr<std::shared_ptr<JobShard>> shard, TaskQueue* queue)
      : queue_(queue) {
    if (!shard.ok()) {
      Finish(ToGrpc(shard.status()));
      return;
    }
    source_ = std::make_unique<RowSource>(request, *std::move(shard));
    queue_->Run([this] { Begin(); });
  }

 private:
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(ToGrpc(absl::CancelledError("the caller has hung up")));
    queue_->Run([this] { SendNext(); });
  }
  void OnDone() override { delete this; }

  void Begin() {
    const absl::Status begun = OrExhausted(
        kWhat, [this] { return source_->Begin(SystemClock().Monotonic() + kLongestBarrier); });
    begun.ok() ? SendNext() : Finish(ToGrpc(begun));
  }
  void SendNext() {
    const absl::StatusOr<bool> more =
        OrExhausted(kWhat, [this] { return source_->MakeNext(chunk_); });
    if (!more.ok() || !*more) return Finish(ToGrpc(more.status()));
    StartWrite(&chunk_);
  }

  TaskQueue* const queue_;
  std::unique_ptr<RowSource> source_;  // one task at a time uses it
  v1::RowChunk chunk_;
};

}  // namespace

absl::StatusOr<v1::FetchPartitionsResponse> FetchPartitionsInto(
    const v1::FetchPartitionsRequest& request, const grpc::CallbackServerContext& caller,
    Channels& channels, double share, JobShard& staged) {
  v1::FetchPartitionsResponse response;
  for (const v1::FetchPartitionsRequest::Source& source : request.sources()) {
    v1::ReadPartitionsRequest read;
    read.set_job_id(request.open().job_id());
    read.set_generation(request.open().take_over());
    *read.mutable_partitions() = source.partitions();
    read.set_changed(request.changed());
    read.set_move(request.open().move());
    read.set_steps(request.steps());
    read.set_ps_process(source.ps_process());
    const auto stub = v1::ParameterService::NewStub(channels.Connect(source.address()));
    const std::unique_ptr<grpc::ClientContext> context =
        grpc::ClientContext::FromCallbackServerContext(caller);
    const auto stream = stub->ReadPartitions(context.get(), read);
    absl::Status status;
    v1::RowChunk chunk;
    absl::Duration begin = SystemClock().Monotonic();
    while (status.ok() && stream->Read(&chunk)) {
      const absl::StatusOr<uint64_t> rows =
          staged.Receive(chunk, /*training_stands=*/request.steps() > 0);
      status = rows.status();
      response.set_rows(response.rows() + rows.value_or(0));
      response.set_bytes(response.bytes() + chunk.records().size());
      absl::SleepFor(RestFor(SystemClock().Monotonic() - begin, share));
      begin = SystemClock().Monotonic();
    }
    if (!status.ok()) context->TryCancel();
    const absl::Status finished = FromGrpc(stream->Finish());
    if (status.ok()) status = finished;
    TESSERA_RETURN_IF_ERROR(WithContext(status, absl::StrCat("rows of ", source.name())));
  }
  // Synced now, so that little is left to do at the barrier.
  staged.received_log().Sync();
  return response;
}

grpc::ServerWriteReactor<v1::RowChunk>* NewRowSender(
    const v1::ReadPartitionsRequest& request, absl::StatusOr<std::shared_ptr<JobShard>> shard,
    TaskQueue* queue) {
  return new RowSender(request, std::move(shard), queue);
}

}  // namespace tessera::ps

#include "ps/partition_fetch.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/checkpoint/checksum.h"
#include "common/checkpoint/row_file_format.h"
#include "common/clock.h"
#include "common/rpc/status.h"
#include "common/status_macros.h"
#include "grpcpp/client_context.h"
#include "tessera/v1/parameter_service.grpc.pb.h"

namespace tessera::ps {
namespace {

constexpr size_t kChunkBytes = 1 << 20;
// The master gives the move up before, and then nobody waits for the source.
constexpr absl::Duration kLongest = absl::Minutes(30);
// For steps that all have pushed to be applied.
constexpr absl::Duration kLongestBarrier = absl::Seconds(5);

class RowSender final : public grpc::ServerWriteReactor<v1::RowChunk> {
 public:
  RowSender(const v1::ReadPartitionsRequest& request,
            absl::StatusOr<std::shared_ptr<JobShard>> shard, Executor* executor)
      : request_(request), executor_(executor) {
    if (!shard.ok()) {
      Finish(ToGrpc(shard.status()));
      return;
    }
    shard_ = *std::move(shard);
    executor_->Run([this] { Begin(); });
  }

 private:
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(ToGrpc(absl::CancelledError("the caller has hung up")));
    executor_->Run([this] { SendNext(); });
  }
  void OnDone() override { delete this; }

  void Begin() {
    absl::Status status;
    if (request_.steps() > 0) {
      status = shard_->AwaitBarrier(request_.steps(), SystemClock().Monotonic() + kLongestBarrier);
    }
    if (status.ok()) {
      const absl::StatusOr<uint64_t> ticket =
          shard_->BeginTake(request_.partitions(), request_.changed(), request_.move());
      status = ticket.status();
      ticket_ = ticket.value_or(0);
    }
    status.ok() ? SendNext() : Finish(ToGrpc(status));
  }

  void SendNext() {
    while (table_ < shard_->table_count()) {
      // Partitions of one table, until a message is full.
      while (records_.size() < kChunkBytes && partition_ < request_.partitions_size()) {
        const absl::Status taken = shard_->TakeRows(
            ticket_, table_, request_.partitions(partition_++), request_.changed(), records_);
        if (!taken.ok()) return Finish(ToGrpc(taken));
      }
      if (sent_ < records_.size()) return Send();
      records_.clear();
      sent_ = 0;
      if (partition_ < request_.partitions_size()) continue;
      partition_ = 0;
      ++table_;
    }
    Finish(grpc::Status::OK);
  }

  void Send() {
    const uint32_t floats = shard_->FloatsOf(table_);
    const size_t record_bytes = row_file::RecordBytes(floats);
    const size_t most = std::max<size_t>(1, kChunkBytes / record_bytes) * record_bytes;
    const size_t bytes = std::min(most, records_.size() - sent_);
    chunk_.set_table(table_);
    chunk_.set_floats_per_row(floats);
    chunk_.set_records(records_.data() + sent_, bytes);
    chunk_.set_checksum(Checksum64Of(chunk_.records()));
    sent_ += bytes;
    if (sent_ == records_.size()) {
      records_.clear();
      sent_ = 0;
    }
    StartWrite(&chunk_);
  }

  const v1::ReadPartitionsRequest request_;
  Executor* const executor_;
  std::shared_ptr<JobShard> shard_;
  uint64_t ticket_ = 0;
  // Where it is. One task at a time looks at this.
  uint32_t table_ = 0;
  int partition_ = 0;  // in the request: the next to be taken
  std::string records_;
  size_t sent_ = 0;  // bytes of `records_`
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
    context->set_deadline(absl::ToChronoTime(absl::Now() + kLongest));
    const auto stream = stub->ReadPartitions(context.get(), read);
    absl::Status status;
    v1::RowChunk chunk;
    absl::Duration begin = SystemClock().Monotonic();
    while (status.ok() && stream->Read(&chunk)) {
      const absl::StatusOr<uint64_t> rows = staged.Receive(chunk);
      status = rows.status();
      response.set_rows(response.rows() + rows.value_or(0));
      response.set_bytes(response.bytes() + chunk.records().size());
      const absl::Duration worked = SystemClock().Monotonic() - begin;
      if (share < 1) absl::SleepFor(worked * (1 / share - 1));
      begin = SystemClock().Monotonic();
    }
    if (!status.ok()) context->TryCancel();
    const absl::Status finished = FromGrpc(stream->Finish());
    if (status.ok()) status = finished;
    TESSERA_RETURN_IF_ERROR(WithContext(status, absl::StrCat("rows of ", source.name())));
  }
  return response;
}

grpc::ServerWriteReactor<v1::RowChunk>* NewRowSender(
    const v1::ReadPartitionsRequest& request, absl::StatusOr<std::shared_ptr<JobShard>> shard,
    Executor* executor) {
  return new RowSender(request, std::move(shard), executor);
}

}  // namespace tessera::ps

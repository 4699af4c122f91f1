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
#include "ps/or_exhausted.h"
#include "ps/sightings_file.h"
#include "ps/writer_rest.h"
#include "tessera/v1/parameter_service.grpc.pb.h"

namespace tessera::ps {
namespace {

constexpr size_t kChunkBytes = 1 << 20;
constexpr absl::string_view kWhat = "rows that are handed out";
// Longer than the master waits before it gives a move up; then nobody waits for the source.
constexpr absl::Duration kLongest = absl::Minutes(30);
// Longest wait until steps that all ranks have pushed are applied.
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
    const absl::Status begun = OrExhausted(kWhat, [this] { return BeginTake(); });
    begun.ok() ? SendNext() : Finish(ToGrpc(begun));
  }

  absl::Status BeginTake() {
    if (request_.steps() > 0) {
      TESSERA_RETURN_IF_ERROR(
          shard_->AwaitBarrier(request_.steps(), SystemClock().Monotonic() + kLongestBarrier));
    }
    TESSERA_ASSIGN_OR_RETURN(
        ticket_, shard_->BeginTake(request_.partitions(), request_.changed(), request_.move()));
    return absl::OkStatus();
  }

  void SendNext() {
    const absl::StatusOr<bool> more = OrExhausted(kWhat, [this] { return MakeNext(); });
    if (!more.ok() || !*more) return Finish(ToGrpc(more.status()));
    StartWrite(&chunk_);
  }

  // Makes the next message; false: all is sent.
  absl::StatusOr<bool> MakeNext() {
    if (sent_ == records_.size()) {
      records_.clear();
      sent_ = 0;
      TESSERA_ASSIGN_OR_RETURN(const bool more, TakeMore());
      if (!more) return false;
    }
    FillChunk();
    return true;
  }

  // Takes rows until there is something to send; false: all is sent.
  absl::StatusOr<bool> TakeMore() {
    while (table_ < shard_->table_count()) {
      if (partition_ == request_.partitions_size()) {
        partition_ = 0;
        // Only the sightings of the last copy count; that copy is one of changed rows.
        sightings_ = !sightings_ && request_.changed() && shard_->CountsSightings(table_);
        if (!sightings_) ++table_;
        continue;
      }
      if (sightings_) {
        // Sent even if there are none: they replace those sent before.
        TESSERA_RETURN_IF_ERROR(
            shard_->TakeSightings(ticket_, table_, request_.partitions(partition_++), records_));
        return true;
      }
      // Rows of several partitions, until a message is full.
      while (records_.size() < kChunkBytes && partition_ < request_.partitions_size()) {
        TESSERA_RETURN_IF_ERROR(shard_->TakeRows(ticket_, table_, request_.partitions(partition_++),
                                                 request_.changed(), records_));
      }
      if (!records_.empty()) return true;
    }
    return false;
  }

  void FillChunk() {
    chunk_.Clear();
    chunk_.set_table(table_);
    size_t unit = kSightingBytes;
    if (sightings_) {
      chunk_.set_sightings_of(request_.partitions(partition_ - 1));
      chunk_.set_first(sent_ == 0);
    } else {
      chunk_.set_floats_per_row(shard_->FloatsOf(table_));
      unit = row_file::RecordBytes(chunk_.floats_per_row());
    }
    const size_t most = std::max<size_t>(1, kChunkBytes / unit) * unit;
    const size_t bytes = std::min(most, records_.size() - sent_);
    chunk_.set_records(records_.data() + sent_, bytes);
    chunk_.set_checksum(Checksum64Of(chunk_.records()));
    sent_ += bytes;
  }

  const v1::ReadPartitionsRequest request_;
  Executor* const executor_;
  std::shared_ptr<JobShard> shard_;
  uint64_t ticket_ = 0;
  // How far it has come. One task at a time uses this.
  uint32_t table_ = 0;
  int partition_ = 0;       // the next to be taken, as an index into the request's
  bool sightings_ = false;  // whether the table's sightings are next: its rows are sent
  std::string records_;     // rows of `table_`, or sightings of the partition before
  size_t sent_ = 0;         // bytes of `records_`
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
    Executor* executor) {
  return new RowSender(request, std::move(shard), executor);
}

}  // namespace tessera::ps

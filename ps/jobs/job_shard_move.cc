// JobShard: partitions that change their owner while the job runs.
#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checksum.h"
#include "common/checkpoint/row_file_format.h"
#include "common/status_macros.h"
#include "google/protobuf/util/message_differencer.h"
#include "ps/jobs/job_shard.h"
#include "ps/jobs/sightings_file.h"
#include "ps/rows/row_records.h"

namespace tessera::ps {

absl::StatusOr<uint64_t> JobShard::BeginTake(absl::Span<const uint32_t> partitions, bool changed,
                                             uint64_t move) {
  const std::string job = absl::StrCat("job ", request_.job_id());
  for (const uint32_t partition : partitions) {
    if (Owns(partition)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(job, ": partition ", partition, " is another ps's"));
  }
  const auto may_begin = [this]() -> absl::Status {
    absl::MutexLock lock(&mu_);
    TESSERA_RETURN_IF_ERROR(closed_);
    if (cut_busy_ || cut_.has_value()) {
      return absl::FailedPreconditionError("a checkpoint is being written");
    }
    // The layers of a further part would lack rows that changed before they were copied.
    written_.reset();
    return absl::OkStatus();
  };
  const absl::StatusOr<uint64_t> ticket = takes_.Begin(partitions, changed, move, may_begin);
  if (!ticket.ok()) return WithContext(ticket.status(), job);
  return ticket;
}

absl::Status JobShard::TakeRows(uint64_t ticket, uint32_t table, uint32_t partition, bool changed,
                                std::string& records) {
  const RowLayout& layout = tables_[table]->store().layout();
  const size_t record_bytes = row_file::RecordBytes(layout.floats());
  const auto append = [&](absl::Span<const Row* const> rows) {
    const size_t before = records.size();
    records.resize(before + rows.size() * record_bytes);
    StoreRecords(layout, rows, records.data() + before);
  };
  TableTier::Taken taken;
  TESSERA_RETURN_IF_ERROR(Take(ticket, partition, [&] {
    taken = tables_[table]->TakeRows(PartitionId(partition), changed, append);
  }));
  return tables_[table]->ReadTaken(taken, append);
}

absl::Status JobShard::TakeSightings(uint64_t ticket, uint32_t table, uint32_t partition,
                                     std::string& sightings) {
  return Take(ticket, partition, [&] {
    AppendSightings(tables_[table]->Sightings(PartitionId(partition)), sightings);
  });
}

absl::Status JobShard::Take(uint64_t ticket, uint32_t partition, absl::FunctionRef<void()> take) {
  const auto if_open = [&]() -> absl::Status {
    TESSERA_RETURN_IF_ERROR(Closed());
    take();
    return absl::OkStatus();
  };
  return WithContext(takes_.Take(ticket, partition, if_open),
                     absl::StrCat("job ", request_.job_id()));
}

absl::StatusOr<uint64_t> JobShard::Receive(const v1::RowChunk& chunk, bool training_stands) {
  TESSERA_ASSIGN_OR_RETURN(const uint64_t rows, ReceiveChunk(chunk));
  received_log_.Add(chunk, training_stands && request_.push_log() != v1::RecoverySpec::FSYNC);
  return rows;
}

absl::StatusOr<uint64_t> JobShard::ReceiveChunk(const v1::RowChunk& chunk) {
  const std::string& records = chunk.records();
  if (Checksum64Of(records) != chunk.checksum()) {
    return absl::DataLossError(
        absl::StrCat("job ", request_.job_id(), ": rows were damaged on their way"));
  }
  if (chunk.has_sightings_of()) {
    TESSERA_RETURN_IF_ERROR(ReceiveSightings(chunk));
    return 0;
  }
  if (chunk.table() >= tables_.size() || chunk.floats_per_row() != FloatsOf(chunk.table()) ||
      records.size() % row_file::RecordBytes(chunk.floats_per_row()) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("job ", request_.job_id(), ": ", records.size(),
                                                   " bytes of rows of ", chunk.floats_per_row(),
                                                   " floats for table ", chunk.table(),
                                                   ", which has other rows here"));
  }
  // A string's bytes are aligned for numbers of 64 bits, and records are multiples of 4.
  const std::vector<RowRecord> rows = ReadRecords(records, chunk.floats_per_row());
  std::vector<uint64_t> keys;
  keys.reserve(rows.size());
  for (const RowRecord& row : rows) keys.push_back(row.key);
  Table& table = *tables_[chunk.table()];
  TESSERA_RETURN_IF_ERROR(table.CheckOwned(keys));
  try {
    TESSERA_RETURN_IF_ERROR(table.Restore(rows));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat("job ", request_.job_id(),
                                                     ": no memory for the rows of table ",
                                                     table.name(), " that were to come here"));
  }
  return rows.size();
}

absl::Status JobShard::ReceiveSightings(const v1::RowChunk& chunk) {
  const auto with_job = [this](const absl::Status& status) {
    return WithContext(status, absl::StrCat("job ", request_.job_id()));
  };
  if (chunk.table() >= tables_.size() || !Owns(chunk.sightings_of())) {
    return with_job(absl::InvalidArgumentError(
        absl::StrCat("sightings of partition ", chunk.sightings_of(), " of table ", chunk.table(),
                     ", which is not one of here")));
  }
  absl::StatusOr<std::vector<Sighting>> sightings = ParseSightings(chunk.records());
  TESSERA_RETURN_IF_ERROR(with_job(sightings.status()));
  Table& table = *tables_[chunk.table()];
  const PartitionId partition(chunk.sightings_of());
  chunk.first() ? table.SetSightings(partition, *sightings)
                : table.AddSightings(partition, *sightings);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<JobShard>> JobShard::OpenEmpty(const v1::OpenJobRequest& request,
                                                              const Options& options,
                                                              JobShard* near, JobShard* staged) {
  if (!request.checkpoint().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "job ", request.job_id(), ": take_over and a checkpoint, expected one of both"));
  }
  for (JobShard* const from : {near, staged}) {
    if (from == nullptr) continue;
    const v1::OpenJobRequest& had = from->request_;
    const bool same =
        std::equal(had.tables().begin(), had.tables().end(), request.tables().begin(),
                   request.tables().end(), google::protobuf::util::MessageDifferencer::Equals);
    if (!same || had.partition_count() != request.partition_count() ||
        had.seed() != request.seed()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "job ", request.job_id(), ": its ", request.tables_size(), " tables, seed or ",
          request.partition_count(), " partitions are not those whose rows are here: ",
          had.tables_size(), " tables in ", had.partition_count(), " partitions"));
    }
  }
  if (near != nullptr) {
    near->FinishTakeOver();
    // Rows that an abandoned move has left on disk must not be found among those that come.
    if (staged == nullptr) TESSERA_RETURN_IF_ERROR(near->FreeOthers());
  }
  if (near != nullptr && staged != nullptr && near->cold_ != staged->cold_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", request.job_id(), ": what was brought over was for another shard of this ps"));
  }
  JobShard* const first = near != nullptr ? near : staged;
  TESSERA_ASSIGN_OR_RETURN(
      std::shared_ptr<JobShard> shard,
      OpenWith(request, options, absl::OkStatus, first != nullptr ? first->cold_ : nullptr));
  if (near == nullptr) return shard;
  for (size_t t = 0; t < near->tables_.size(); ++t) {
    shard->tables_[t]->PrepareToTakeOver(*near->tables_[t]);
  }
  return shard;
}

absl::Status JobShard::CheckApplied(uint64_t steps) const {
  absl::MutexLock lock(&mu_);
  if (!has_sync_ || order_.next_step() == steps) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("job ", request_.job_id(), ": ", order_.next_step(),
                   " steps have been applied here, expected ", steps));
}

void JobShard::TakeOver(JobShard& from) {
  // Waits for all who change rows there.
  absl::MutexLock alone(&from.cut_mu_);
  for (size_t t = 0; t < std::min(tables_.size(), from.tables_.size()); ++t) {
    tables_[t]->TakeOver(*from.tables_[t]);
  }
  absl::MutexLock lock(&free_mu_);
  to_free_ = true;
}

v1::WeighPartitionsResponse JobShard::WeighPartitions() const {
  v1::WeighPartitionsResponse response;
  for (const PartitionId partition : partitions_.owned()) {
    uint64_t bytes = 0;
    uint64_t updates = 0;
    for (const auto& table : tables_) {
      const RowStore::Weight weight = table->store().Weigh(partition);
      bytes += weight.rows * table->store().layout().block_bytes();
      updates += weight.updates;
    }
    response.add_bytes(bytes);
    response.add_updates(updates);
  }
  return response;
}

void JobShard::FinishTakeOver() {
  received_log_.Finish();
  absl::MutexLock lock(&free_mu_);
  // After an error the rest is removed from the disk before rows are brought here again.
  if (std::exchange(to_free_, false)) FreeOthers().IgnoreError();
}

absl::Status JobShard::FreeOthers() {
  for (const auto& table : tables_) TESSERA_RETURN_IF_ERROR(table->FreeOthers());
  return absl::OkStatus();
}

}  // namespace tessera::ps

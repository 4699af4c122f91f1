#include "ps/jobs/row_source.h"

#include <algorithm>

#include "common/checkpoint/checksum.h"
#include "common/checkpoint/row_file_format.h"
#include "common/status_macros.h"
#include "ps/jobs/sightings_file.h"

namespace tessera::ps {

absl::Status RowSource::Begin(absl::Duration deadline) {
  if (request_.steps() > 0) {
    TESSERA_RETURN_IF_ERROR(shard_->AwaitBarrier(request_.steps(), deadline));
  }
  TESSERA_ASSIGN_OR_RETURN(
      ticket_, shard_->BeginTake(request_.partitions(), request_.changed(), request_.move()));
  return absl::OkStatus();
}

absl::StatusOr<bool> RowSource::MakeNext(v1::RowChunk& chunk) {
  if (sent_ == records_.size()) {
    records_.clear();
    sent_ = 0;
    TESSERA_ASSIGN_OR_RETURN(const bool more, TakeMore());
    if (!more) return false;
  }
  Fill(chunk);
  return true;
}

absl::StatusOr<bool> RowSource::TakeMore() {
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
    while (records_.size() < chunk_bytes_ && partition_ < request_.partitions_size()) {
      TESSERA_RETURN_IF_ERROR(shard_->TakeRows(ticket_, table_, request_.partitions(partition_++),
                                               request_.changed(), records_));
    }
    if (!records_.empty()) return true;
  }
  return false;
}

void RowSource::Fill(v1::RowChunk& chunk) {
  chunk.Clear();
  chunk.set_table(table_);
  size_t unit = kSightingBytes;
  if (sightings_) {
    chunk.set_sightings_of(request_.partitions(partition_ - 1));
    chunk.set_first(sent_ == 0);
  } else {
    chunk.set_floats_per_row(shard_->FloatsOf(table_));
    unit = row_file::RecordBytes(chunk.floats_per_row());
  }
  const size_t most = std::max<size_t>(1, chunk_bytes_ / unit) * unit;
  const size_t bytes = std::min(most, records_.size() - sent_);
  chunk.set_records(records_.data() + sent_, bytes);
  chunk.set_checksum(Checksum64Of(chunk.records()));
  sent_ += bytes;
}

}  // namespace tessera::ps

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ps/jobs/job_shard.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::ps {

// What the old owner of partitions answers to ReadPartitions, message by message: the rows of each
// table, then, if they are the last copy, its sightings. Used by one thread at a time.
class RowSource {
 public:
  static constexpr size_t kChunkBytes = 1 << 20;

  // `chunk_bytes`: about the size of a message.
  RowSource(const v1::ReadPartitionsRequest& request, std::shared_ptr<JobShard> shard,
            size_t chunk_bytes = kChunkBytes)
      : request_(request), shard_(std::move(shard)), chunk_bytes_(chunk_bytes) {}

  // Before the first message. In sync mode waits until the request's steps are applied, at most
  // until `deadline` (of Clock::Monotonic). Errors as JobShard's.
  absl::Status Begin(absl::Duration deadline);
  // Makes the next message; false: all is sent.
  absl::StatusOr<bool> MakeNext(v1::RowChunk& chunk);

 private:
  // Takes rows until there is something to send; false: all is sent.
  absl::StatusOr<bool> TakeMore();
  void Fill(v1::RowChunk& chunk);

  const v1::ReadPartitionsRequest request_;
  const std::shared_ptr<JobShard> shard_;
  const size_t chunk_bytes_;
  uint64_t ticket_ = 0;
  // How far it has come.
  uint32_t table_ = 0;
  int partition_ = 0;       // the next to be taken, as an index into the request's
  bool sightings_ = false;  // whether the table's sightings are next: its rows are sent
  std::string records_;     // rows of `table_`, or sightings of the partition before
  size_t sent_ = 0;         // bytes of `records_`
};

}  // namespace tessera::ps

#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "grpcpp/support/byte_buffer.h"
#include "tessera/v1/parameter_service.pb.h"
#include "worker/key_chunks.h"
#include "worker/parameter_client.h"
#include "worker/shared_bulk.h"

namespace tessera::worker {

// `request` without blocks, with the keys of a chunk.
grpc::ByteBuffer PullMessage(const v1::PullRequest& request, const TableRows* tables,
                             const KeyChunk& chunk);

// One message of a pull: what it asks for, what its answer must have, and where that goes. The keys
// and rows are the caller's. Used by one thread at a time.
class PullLeg final : public SharedAttempt {
 public:
  // `ps` is its name; `request` is without blocks.
  PullLeg(const v1::PullRequest& request, const TableRows* tables, KeyChunk chunk, std::string ps)
      : request_(request), tables_(tables), chunk_(std::move(chunk)), ps_(std::move(ps)) {}

  // Of an attempt, which ends the one before; its bulk lies in `bulk`, or without one in itself.
  grpc::ByteBuffer Message(bool all_confirmed, std::optional<SharedBulk> bulk);
  // What `Message` may be given in shared memory.
  std::vector<BulkBlock> Bulk() const;
  // Copies the rows to their keys. Blocks are matched by table, and a block of another size than
  // asked for is an error: rows never land on the wrong keys. `has_cold_rows`: the answer's.
  absl::Status Take(const grpc::ByteBuffer& answer, std::atomic<bool>& has_cold_rows);

 private:
  const v1::PullRequest request_;
  const TableRows* const tables_;
  const KeyChunk chunk_;
  const std::string ps_;
};

}  // namespace tessera::worker

#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "grpcpp/support/byte_buffer.h"
#include "tessera/v1/parameter_service.pb.h"
#include "worker/parameters/key_chunks.h"
#include "worker/parameters/parameter_client.h"
#include "worker/parameters/shared_bulk.h"

namespace tessera::worker {

// `request`, which has no blocks yet, with the keys of `chunk`.
grpc::ByteBuffer PullMessage(const v1::PullRequest& request, const TableRows* tables,
                             const KeyChunk& chunk);

// One message of a pull: the keys that it asks for, the check of its answer, and where its rows go.
// The keys and rows are the caller's. Used by one thread at a time.
class PullLeg final : public SharedAttempt {
 public:
  // `ps` is the name of the ps; `request` has no blocks yet.
  PullLeg(const v1::PullRequest& request, const TableRows* tables, KeyChunk chunk, std::string ps)
      : request_(request), tables_(tables), chunk_(std::move(chunk)), ps_(std::move(ps)) {}

  // The message of a new attempt; ends the attempt before. Keys and rows go through `bulk` if it is
  // given, else they are in the message and its answer.
  grpc::ByteBuffer Message(bool all_confirmed, std::optional<SharedBulk> bulk);
  // What a SharedBulk for `Message` must have.
  std::vector<BulkBlock> Bulk() const;
  // Copies the answer's rows to where the caller wants them. A block of another table or size than
  // asked for is an error, so rows never land on the wrong keys. Sets `has_cold_rows` as the answer
  // says.
  absl::Status Take(const grpc::ByteBuffer& answer, std::atomic<bool>& has_cold_rows);

 private:
  const v1::PullRequest request_;
  const TableRows* const tables_;
  const KeyChunk chunk_;
  const std::string ps_;
};

}  // namespace tessera::worker

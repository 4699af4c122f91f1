#pragma once

#include <optional>
#include <vector>

#include "common/wire/buffer.h"
#include "common/wire/bulk_layout.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"
#include "tessera/v1/parameter_service.pb.h"
#include "worker/parameters/key_chunks.h"
#include "worker/parameters/parameter_client.h"
#include "worker/parameters/shared_bulk.h"

namespace tessera::worker {

// Keys and gradients (or values) of a chunk, in their form on the wire. The memory of both is the
// caller's. Used by one thread at a time.
class GradientBulk {
 public:
  GradientBulk(const TableGradients* tables, KeyChunk chunk)
      : tables_(tables), chunk_(std::move(chunk)) {}

  const KeyChunk& chunk() const { return chunk_; }
  // The block's header, without keys and numbers.
  v1::GradientBlock Block(const KeyRange& range) const;
  // [chunk]. Numbers that are sent as bfloat16 are rounded once, and kept here until Drop.
  absl::Span<const BulkBlock> Blocks();
  void Drop() {
    blocks_.clear();
    rounded_.clear();
  }
  // `request`, which has no blocks yet, with all blocks.
  grpc::ByteBuffer Message(const wire::BulkLayout& layout,
                           const google::protobuf::MessageLite& request);

 private:
  const TableGradients* const tables_;
  const KeyChunk chunk_;
  std::vector<BulkBlock> blocks_;      // [chunk]; empty: not made yet
  std::vector<wire::Buffer> rounded_;  // memory of those blocks that are not the caller's
};

// One message of a push. Used by one thread at a time.
class PushLeg final : public SharedAttempt {
 public:
  // `request` has no blocks yet.
  PushLeg(const v1::PushRequest& request, const TableGradients* tables, KeyChunk chunk)
      : request_(request), bulk_(tables, std::move(chunk)) {}

  // The message of a new attempt; ends the attempt before. Keys and gradients are in `bulk` if it
  // is given, else in the message.
  grpc::ByteBuffer Message(std::optional<SharedBulk> bulk);
  // What a SharedBulk for `Message` must have.
  absl::Span<const BulkBlock> Bulk() { return bulk_.Blocks(); }
  // Called when the ps has answered: no attempt follows.
  void Answered() {
    End();
    bulk_.Drop();
  }

 private:
  const v1::PushRequest request_;
  GradientBulk bulk_;
};

}  // namespace tessera::worker

#pragma once

#include <optional>
#include <vector>

#include "common/wire/buffer.h"
#include "common/wire/bulk_layout.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"
#include "tessera/v1/parameter_service.pb.h"
#include "worker/key_chunks.h"
#include "worker/parameter_client.h"
#include "worker/shared_bulk.h"

namespace tessera::worker {

// Keys and gradients (or values) of a chunk as they go on the wire. The keys and gradients are the
// caller's. Used by one thread at a time.
class GradientBulk {
 public:
  GradientBulk(const TableGradients* tables, KeyChunk chunk)
      : tables_(tables), chunk_(std::move(chunk)) {}

  const KeyChunk& chunk() const { return chunk_; }
  // Without keys and numbers.
  v1::GradientBlock Block(const KeyRange& range) const;
  // [chunk]. What goes as bfloat16 is rounded once, and kept here until Drop.
  absl::Span<const BulkBlock> Blocks();
  void Drop() {
    blocks_.clear();
    rounded_.clear();
  }
  // `request` is without blocks.
  grpc::ByteBuffer Message(const wire::BulkLayout& layout,
                           const google::protobuf::MessageLite& request);

 private:
  const TableGradients* const tables_;
  const KeyChunk chunk_;
  std::vector<BulkBlock> blocks_;      // [chunk], or none yet
  std::vector<wire::Buffer> rounded_;  // what they lie in that is not the caller's
};

// One message of a push. Used by one thread at a time.
class PushLeg final : public SharedAttempt {
 public:
  // `request` is without blocks.
  PushLeg(const v1::PushRequest& request, const TableGradients* tables, KeyChunk chunk)
      : request_(request), bulk_(tables, std::move(chunk)) {}

  // Of an attempt, which ends the one before; its bulk lies in `bulk`, or without one in itself.
  grpc::ByteBuffer Message(std::optional<SharedBulk> bulk);
  // What `Message` may be given in shared memory.
  absl::Span<const BulkBlock> Bulk() { return bulk_.Blocks(); }
  // The ps has it: no attempt follows.
  void Answered() {
    End();
    bulk_.Drop();
  }

 private:
  const v1::PushRequest request_;
  GradientBulk bulk_;
};

}  // namespace tessera::worker

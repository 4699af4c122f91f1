#pragma once

#include <optional>
#include <vector>

#include "common/wire/bulk_layout.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"
#include "tessera/v1/parameter_service.pb.h"
#include "worker/key_chunks.h"
#include "worker/parameter_client.h"
#include "worker/shared_bulk.h"

namespace tessera::worker {

// `request` without blocks, with the keys and gradients (or values) of a chunk.
grpc::ByteBuffer GradientMessage(const wire::BulkLayout& layout,
                                 const google::protobuf::MessageLite& request,
                                 const TableGradients* tables, const KeyChunk& chunk);

// One message of a push. The keys and gradients are the caller's. Used by one thread at a time.
class PushLeg final : public SharedAttempt {
 public:
  // `request` is without blocks.
  PushLeg(const v1::PushRequest& request, const TableGradients* tables, KeyChunk chunk)
      : request_(request), tables_(tables), chunk_(std::move(chunk)) {}

  // Of an attempt, which ends the one before; its bulk lies in `bulk`, or without one in itself.
  grpc::ByteBuffer Message(std::optional<SharedBulk> bulk);
  // What `Message` may be given in shared memory.
  std::vector<BulkBlock> Bulk() const;

 private:
  const v1::PushRequest request_;
  const TableGradients* const tables_;
  const KeyChunk chunk_;
};

}  // namespace tessera::worker

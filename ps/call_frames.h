#pragma once

#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"
#include "ps/calls.h"

// Calls as they lie in the bytes of a message, and back.
namespace tessera::ps {

// INVALID_ARGUMENT: not such a message. Throws std::bad_alloc.
absl::StatusOr<PullCall> ReadPull(const grpc::ByteBuffer& message);
absl::StatusOr<PushCall> ReadPush(const grpc::ByteBuffer& message);
// The values are sent from where they lie.
grpc::ByteBuffer WriteAnswer(PullAnswer answer);

}  // namespace tessera::ps

#pragma once

#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"
#include "ps/calls/calls.h"

// Reads calls from the bytes of a message, and writes answers as such.
namespace tessera::ps {

// INVALID_ARGUMENT: the bytes are no such message. Throws std::bad_alloc.
absl::StatusOr<PullCall> ReadPull(const grpc::ByteBuffer& message);
absl::StatusOr<PushCall> ReadPush(const grpc::ByteBuffer& message);
// Sends the values from where they lie, without a copy.
grpc::ByteBuffer WriteAnswer(PullAnswer answer);

}  // namespace tessera::ps

#pragma once

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace tessera {

// gRPC's status and ours have the same codes; these keep code and message, to which they add what
// may help where a connection was refused. The one place where they are translated.
absl::Status FromGrpc(const grpc::Status& status);
grpc::Status ToGrpc(const absl::Status& status);

// Whether the same call may succeed later without anything else being changed: UNAVAILABLE,
// RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED.
bool IsRetryable(const absl::Status& status);
// What gRPC says of a call whose server stopped, or whose connection broke in the middle:
// CANCELLED, UNKNOWN. Where the caller has not given it up itself, it may be repeated, too.
bool IsBroken(const absl::Status& status);

}  // namespace tessera

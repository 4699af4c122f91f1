#pragma once

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace tessera {

// Translate between gRPC's status and ours, which have the same codes; no other code does. FromGrpc
// adds a hint to some messages of refused connections, and names the code of an error without a
// message; ToGrpc cuts a message that is too long for gRPC.
absl::Status FromGrpc(const grpc::Status& status);
grpc::Status ToGrpc(const absl::Status& status);

// Whether the same call may succeed later without any other change: UNAVAILABLE,
// RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED.
bool IsRetryable(const absl::Status& status);
// Whether gRPC reports that the server stopped or the connection broke during a call: CANCELLED,
// UNKNOWN. If the caller has not cancelled the call itself, it may repeat it, too.
bool IsBroken(const absl::Status& status);

}  // namespace tessera

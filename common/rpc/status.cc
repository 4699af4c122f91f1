#include "common/rpc/status.h"

#include <string>

namespace tessera {

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

bool IsRetryable(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ||
         absl::IsDeadlineExceeded(status);
}

bool IsBroken(const absl::Status& status) {
  return absl::IsCancelled(status) || absl::IsUnknown(status);
}

}  // namespace tessera

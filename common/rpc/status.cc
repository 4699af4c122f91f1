#include "common/rpc/status.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tessera {
namespace {

// Cuts a message to what gRPC sends: it travels in the metadata, which may have 8 KB, and a byte
// that is not a plain character takes three. With a longer message the caller would learn only that
// it was too long.
std::string CutToFit(std::string message) {
  constexpr size_t kMost = 6000;
  size_t taken = 0;
  for (size_t i = 0; i < message.size(); ++i) {
    taken += message[i] >= ' ' && message[i] <= '~' && message[i] != '%' ? 1 : 3;
    if (taken <= kMost) continue;
    while (i > 0 && (message[i] & 0xc0) == 0x80) --i;  // cuts at a character's start
    return absl::StrCat(message.substr(0, i), " ... (cut, of ", message.size(), " bytes)");
  }
  return message;
}

// A hint for a connection that failed in its handshake, as when only one side speaks TLS.
absl::string_view HintOf(const grpc::Status& status) {
  const std::string& message = status.error_message();
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE ||
      !absl::StrContains(message, "failed to connect")) {
    return "";
  }
  if (absl::StrContains(message, "wrong version number")) {
    return " (is it a server without TLS? then leave out --tls-ca)";
  }
  const bool closed =
      absl::StrContains(message, "Socket closed") || absl::StrContains(message, "Connection reset");
  return closed ? " (is it a server with TLS? then it takes --tls-ca and --token-file)" : "";
}

}  // namespace

absl::Status FromGrpc(const grpc::Status& status) {
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  // As of a request that gRPC cannot write, such as one whose texts are not UTF-8.
  if (status.error_message().empty()) {
    return absl::Status(code, absl::StrCat(absl::StatusCodeToString(code), " without a message"));
  }
  return absl::Status(code, absl::StrCat(status.error_message(), HintOf(status)));
}

grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      CutToFit(std::string(status.message())));
}

bool IsRetryable(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ||
         absl::IsDeadlineExceeded(status);
}

bool IsBroken(const absl::Status& status) {
  return absl::IsCancelled(status) || absl::IsUnknown(status);
}

}  // namespace tessera

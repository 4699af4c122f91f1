#pragma once

#include <cstdint>
#include <new>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/support/byte_buffer.h"

// Reads a pull or a push for which there may be no memory.
namespace tessera::ps {

// What the message is by `read`, ReadPull or ReadPush. RESOURCE_EXHAUSTED: no memory for the call.
template <typename Call>
absl::StatusOr<Call> ReadCall(const grpc::ByteBuffer& message,
                              absl::StatusOr<Call> (*read)(const grpc::ByteBuffer&)) {
  try {
    return read(message);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for a call of ", message.Length(),
                                                     " bytes; use machines with more memory"));
  }
}

// Reads what the call has in shared memory; `take` is TakeShared. RESOURCE_EXHAUSTED as ReadCall.
inline absl::StatusOr<uint64_t> ReadShared(absl::FunctionRef<absl::StatusOr<uint64_t>()> take) {
  try {
    return take();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        "no memory for a call with its bulk in shared memory; use machines with more memory");
  }
}

}  // namespace tessera::ps

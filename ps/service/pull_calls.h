#pragma once

#include "absl/time/time.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "ps/service/parameter_service.h"

namespace tessera::ps {

// Runs v1::ParameterService.Pull; returns the reactor of the call, which is finished once. A small
// pull that waits for no disk runs in the caller's thread, any other as a task of options.requests;
// one that has to wait for a step holds no thread. `deadline` is of Clock::Monotonic. What is
// handed in lives until the call is finished.
grpc::ServerUnaryReactor* RunPull(const ParameterService::Options& options, absl::Duration deadline,
                                  const grpc::ByteBuffer& request, grpc::ByteBuffer* response);

}  // namespace tessera::ps

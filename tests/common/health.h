#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <string>

#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"

namespace tessera {

// Of a HealthCheckResponse: field 1, a number.
inline std::string HealthIn(const grpc::ByteBuffer& response) {
  grpc::Slice slice;
  if (!response.DumpToSingleSlice(&slice).ok()) return "no bytes";
  const std::string bytes(reinterpret_cast<const char*>(slice.begin()), slice.size());
  if (bytes == "\x08\x01") return "SERVING";
  return bytes == "\x08\x02" ? "NOT_SERVING" : "unknown";
}

// What grpc.health.v1.Health/Check says of a server as a whole: "SERVING", "NOT_SERVING", or what
// became of the call.
inline std::string HealthAt(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  const grpc::ByteBuffer request(nullptr, 0);  // HealthCheckRequest of the service ""
  grpc::ByteBuffer answer;
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &request, &answer,
                 [&done](grpc::Status s) { done.set_value(std::move(s)); });
  if (const grpc::Status status = done.get_future().get(); !status.ok()) {
    return status.error_message();
  }
  return HealthIn(answer);
}

}  // namespace tessera

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/rpc/channels.h"
#include "common/rpc/server.h"
#include "grpcpp/generic/async_generic_service.h"

namespace tessera::bench {

// What gRPC itself carries on this machine: a server that answers raw bytes with as many raw bytes
// as the caller asks for, and does nothing else.
class EchoServer {
 public:
  static absl::StatusOr<std::unique_ptr<EchoServer>> Start();
  ~EchoServer();
  const std::string& address() const;

 private:
  class Service;
  EchoServer();
  std::unique_ptr<Service> service_;
  std::unique_ptr<RpcServer> server_;
};

// Unary calls of raw bytes to an EchoServer, several in flight.
class EchoClient {
 public:
  explicit EchoClient(const std::string& address);
  ~EchoClient();
  // `calls` calls, each of request_bytes and answered with response_bytes, at most `in_flight` of
  // them at a time. Waits for all.
  absl::Status Exchange(int calls, uint64_t request_bytes, uint64_t response_bytes, int in_flight);

 private:
  class Run;
  const std::unique_ptr<Channels> channels_;
  const std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace tessera::bench

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/channels.h"
#include "common/rpc/listener.h"
#include "common/rpc/security.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"

namespace tessera {

struct ServerOptions {
  // host:port; port 0 takes a free port. Any address but loopback needs `security` or `insecure`.
  std::string listen = "127.0.0.1:0";
  // TLS with a certificate, and a token that each call must carry. Null: neither. Borrowed;
  // outlives the server.
  const Security* security = nullptr;
  // Allows an address that others can reach, without TLS. An operator's explicit choice.
  bool insecure = false;
  // Set: serve in this process only, under the name `listen`. Borrowed; outlives the server.
  InProcessChannels* in_process = nullptr;
  // Bytes of messages from the network that are here in whole or in part, until their calls end.
  // Where more comes gRPC ends calls, chosen at random, with RESOURCE_EXHAUSTED, or connections,
  // whose calls are UNAVAILABLE then. Not in process.
  uint64_t max_received_bytes = 512 << 20;
};

// A gRPC server with health and reflection. Health covers the whole process: SERVING, except while
// the process has no file descriptor for a connection. Thread-safe.
class RpcServer {
 public:
  // `services` are borrowed and outlive the server. FAILED_PRECONDITION: as CheckListen;
  // UNAVAILABLE: the address is in use or not this machine's.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(
      const ServerOptions& options, const std::vector<grpc::Service*>& services);
  // Stops at once if Shutdown has not been called.
  ~RpcServer();

  // host:port with the port that was taken, or the in-process name: what Channels::Connect takes.
  const std::string& address() const { return address_; }
  // Sets health to NOT_SERVING for good; calls are served as before.
  void SayNotServing();
  // SayNotServing; takes no new calls, lets the running ones finish for `grace`, then cancels them.
  // Waits until all are gone.
  void Shutdown(absl::Duration grace);

 private:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;
  RpcServer(std::unique_ptr<grpc::Server> server, std::unique_ptr<Acceptor> acceptor,
            std::unique_ptr<Listener> listener, std::string address, InProcessChannels* in_process);

  const std::unique_ptr<grpc::Server> server_;
  const std::unique_ptr<Acceptor> acceptor_;  // null, like listener_: in-process server
  const std::unique_ptr<Listener> listener_;  // feeds acceptor_
  const std::string address_;
  InProcessChannels* const in_process_;
};

// Calls at once of one connection; further ones wait at the caller. A call takes some 17 KB.
inline constexpr int kMaxCallsOfConnection = 256;

// FAILED_PRECONDITION: other machines can reach the address, and neither `insecure` nor `security`
// is given; or `security` has no certificate.
absl::Status CheckListen(const ServerOptions& options);

}  // namespace tessera

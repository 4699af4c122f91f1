#pragma once

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
  // host:port; port 0 takes a free one. Anything but loopback needs `security` or `insecure`.
  std::string listen = "127.0.0.1:0";
  // TLS with a certificate, and a token that each call must bring. Null: neither. Borrowed;
  // outlives the server.
  const Security* security = nullptr;
  // Allows an address that others can reach, without TLS. An operator's explicit choice.
  bool insecure = false;
  // Set: serve in this process only, under the name `listen`. Borrowed; outlives the server.
  InProcessChannels* in_process = nullptr;
};

// A gRPC server with health and reflection. Health is of the process as a whole: SERVING, but for
// the time in which it has no file descriptor for a connection. Thread-safe.
class RpcServer {
 public:
  // `services` are borrowed and outlive the server. FAILED_PRECONDITION: a reachable address
  // without `insecure` or `security`, or there is no certificate; UNAVAILABLE: the address is taken
  // or not this machine's.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(
      const ServerOptions& options, const std::vector<grpc::Service*>& services);
  // Stops at once if Shutdown has not been called.
  ~RpcServer();

  // host:port with the port that was taken, or the in-process name: what Channels::Connect takes.
  const std::string& address() const { return address_; }
  // Health is NOT_SERVING from here on, for good; calls are served as before.
  void SayNotServing();
  // SayNotServing; takes no new calls, lets the running ones finish for `grace`, then cancels them.
  // Waits until all are gone.
  void Shutdown(absl::Duration grace);

 private:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;
  RpcServer(std::unique_ptr<grpc::Server> server, std::unique_ptr<Acceptor> acceptor,
            std::unique_ptr<Listener> listener, std::string address, InProcessChannels* in_process);

  const std::unique_ptr<grpc::Server> server_;
  const std::unique_ptr<Acceptor> acceptor_;  // null, like listener_: it serves in this process
  const std::unique_ptr<Listener> listener_;  // feeds acceptor_
  const std::string address_;
  InProcessChannels* const in_process_;
};

// FAILED_PRECONDITION: others can reach the address, and neither `insecure` nor `security` allows
// it; `security` has no certificate.
absl::Status CheckListen(const ServerOptions& options);

}  // namespace tessera

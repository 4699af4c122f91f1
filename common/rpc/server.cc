#include "common/rpc/server.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/address.h"
#include "common/rpc/grpc_log.h"
#include "common/status_macros.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"

namespace tessera {

absl::Status CheckListen(const ServerOptions& options) {
  if (options.in_process != nullptr) return absl::OkStatus();
  if (options.security != nullptr) {
    return WithContext(options.security->ForServers().status(),
                       absl::StrCat("listen address ", options.listen));
  }
  if (IsLoopback(options.listen) || options.insecure) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "listen address ", options.listen,
      " can be reached from other machines: give --tls-ca, --tls-certificate, --tls-key and "
      "--token-file, listen on 127.0.0.1, or accept with --insecure that anybody may call"));
}

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const ServerOptions& options, const std::vector<grpc::Service*>& services) {
  const bool network = options.in_process == nullptr;
  TESSERA_RETURN_IF_ERROR(CheckListen(options));
  RouteGrpcLog();
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsOfConnection);
  std::unique_ptr<Listener> listener;
  std::unique_ptr<Acceptor> acceptor;
  std::string address = options.listen;
  if (network) {
    TESSERA_ASSIGN_OR_RETURN(listener, Listener::Bind(address));
    address = listener->address();
    std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
    if (options.security != nullptr) {
      TESSERA_ASSIGN_OR_RETURN(credentials, options.security->ForServers());
    }
    acceptor = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
    builder.SetResourceQuota(grpc::ResourceQuota(address).Resize(options.max_received_bytes));
  }
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot serve at ", address, ": see the log"));
  }
  if (!network) {
    options.in_process->Add(address, server.get());
  } else {
    listener->Start(
        [acceptor = acceptor.get()](int listener_fd, int fd) {
          Acceptor::NewConnectionParameters connection;
          connection.listener_fd = listener_fd;
          connection.fd = fd;
          acceptor->HandleNewConnection(&connection);
        },
        [health = server->GetHealthCheckService()](bool takes) {
          health->SetServingStatus(takes);
        });
  }
  return std::unique_ptr<RpcServer>(new RpcServer(std::move(server), std::move(acceptor),
                                                  std::move(listener), std::move(address),
                                                  options.in_process));
}

RpcServer::RpcServer(std::unique_ptr<grpc::Server> server, std::unique_ptr<Acceptor> acceptor,
                     std::unique_ptr<Listener> listener, std::string address,
                     InProcessChannels* in_process)
    : server_(std::move(server)),
      acceptor_(std::move(acceptor)),
      listener_(std::move(listener)),
      address_(std::move(address)),
      in_process_(in_process) {}

RpcServer::~RpcServer() { Shutdown(absl::ZeroDuration()); }

void RpcServer::SayNotServing() { server_->GetHealthCheckService()->Shutdown(); }

void RpcServer::Shutdown(absl::Duration grace) {
  SayNotServing();
  if (in_process_ != nullptr) in_process_->Remove(address_);
  if (listener_ != nullptr) listener_->Stop();
  server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
  server_->Wait();
}

}  // namespace tessera

#include "common/rpc/channels.h"

#include "common/rpc/grpc_log.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"

namespace tessera {
namespace {

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  // A peer that vanished without closing its connection is noticed within 15 s.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Our own callers back off; gRPC's waits stay short so that a restarted peer is found soon.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // How long a try to connect may take, whatever the backoff is: a peer that is far or busy answers
  // late.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  // Each Connect gets connections of its own, so a large block does not wait behind another
  // caller's.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Calls never leave the machine's network by way of a proxy from the environment.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

class NetworkChannels final : public Channels {
 public:
  std::shared_ptr<grpc::Channel> Connect(const std::string& address) override {
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), Arguments());
  }
};

}  // namespace

std::unique_ptr<Channels> NewNetworkChannels() {
  RouteGrpcLog();
  return std::make_unique<NetworkChannels>();
}

std::shared_ptr<grpc::Channel> InProcessChannels::Connect(const std::string& address) {
  absl::MutexLock lock(&mu_);
  if (auto it = servers_.find(address); it != servers_.end()) {
    return it->second->InProcessChannel(Arguments());
  }
  // Nobody serves there (yet): a channel whose calls fail with UNAVAILABLE.
  return grpc::CreateCustomChannel("unix:/nonexistent/" + address,
                                   grpc::InsecureChannelCredentials(), Arguments());
}

void InProcessChannels::Add(const std::string& address, grpc::Server* server) {
  absl::MutexLock lock(&mu_);
  servers_[address] = server;
}

void InProcessChannels::Remove(const std::string& address) {
  absl::MutexLock lock(&mu_);
  servers_.erase(address);
}

}  // namespace tessera

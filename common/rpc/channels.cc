#include "common/rpc/channels.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/log.h"
#include "common/rpc/address.h"
#include "common/rpc/grpc_log.h"
#include "common/rpc/security.h"
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
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Our own callers back off; gRPC's waits stay short so that a restarted peer is found soon.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // The least time for a try to connect, whatever the backoff is: a distant or busy peer is slow.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  // Each Connect gets connections of its own, so a large block does not wait behind another
  // caller's.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Calls never go through a proxy that the environment names.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

// The prefix of a target where nobody serves, so that calls fail with UNAVAILABLE.
constexpr char kNobody[] = "unix:/nonexistent/";

void SayUnusable(const absl::Status& wrong) {
  SPDLOG_WARN("the address to call {}", std::string(wrong.message()));
}

// Addresses for gRPC's resolvers of numeric addresses: "ipv4:1.2.3.4:7070" or "ipv6:[::1]:7070".
struct NumericAddresses {
  std::vector<std::string> ipv4;  // ip:port
  std::vector<std::string> ipv6;  // [ip]:port
  int names_with_ipv4 = 0;
  int names_with_ipv6 = 0;

  // Looks up the addresses of "host:port" and appends them.
  void Add(absl::string_view address) {
    const absl::StatusOr<Address> wanted = ParseServerAddress(address);
    if (!wanted.ok()) return SayUnusable(wanted.status());
    const std::string port = absl::StrCat(wanted->port);
    addrinfo hints = {};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int error = ::getaddrinfo(wanted->host.c_str(), port.c_str(), &hints, &found);
        error != 0) {
      SPDLOG_WARN("cannot look up {}: {}", std::string(address), ::gai_strerror(error));
      return;
    }
    const size_t ipv4_before = ipv4.size();
    const size_t ipv6_before = ipv6.size();
    for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
      char text[INET6_ADDRSTRLEN];
      if (info->ai_family == AF_INET) {
        const auto* const in = reinterpret_cast<const sockaddr_in*>(info->ai_addr);
        ::inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text));
        ipv4.push_back(absl::StrCat(text, ":", ntohs(in->sin_port)));
      } else if (info->ai_family == AF_INET6) {
        const auto* const in = reinterpret_cast<const sockaddr_in6*>(info->ai_addr);
        ::inet_ntop(AF_INET6, &in->sin6_addr, text, sizeof(text));
        ipv6.push_back(absl::StrCat("[", text, "]:", ntohs(in->sin6_port)));
      }
    }
    ::freeaddrinfo(found);
    names_with_ipv4 += ipv4.size() > ipv4_before;
    names_with_ipv6 += ipv6.size() > ipv6_before;
  }
};

// The gRPC target of one address or a list. A target has addresses of the family that most names
// have.
std::string Target(const std::string& address) {
  const std::vector<absl::string_view> names = absl::StrSplit(address, ',', absl::SkipEmpty());
  if (names.size() == 1) {
    const absl::Status usable = CheckServerAddresses(names[0]);
    if (usable.ok()) return std::string(names[0]);
    SayUnusable(usable);
    return absl::StrCat(kNobody, address);  // gRPC would read port 70000 as 4464
  }
  NumericAddresses found;
  for (const absl::string_view name : names) found.Add(name);
  if (found.names_with_ipv4 > 0 && found.names_with_ipv4 >= found.names_with_ipv6) {
    return absl::StrCat("ipv4:", absl::StrJoin(found.ipv4, ","));
  }
  if (found.names_with_ipv6 > 0) return absl::StrCat("ipv6:", absl::StrJoin(found.ipv6, ","));
  return absl::StrCat(kNobody, address);
}

class NetworkChannels final : public Channels {
 public:
  explicit NetworkChannels(const Security* security)
      : credentials_(security == nullptr ? grpc::InsecureChannelCredentials()
                                         : security->ForChannels()),
        arguments_(Arguments()) {
    if (security != nullptr && !security->server_name().empty()) {
      arguments_.SetSslTargetNameOverride(security->server_name());
    }
  }

  std::shared_ptr<grpc::Channel> Connect(const std::string& address) override {
    return grpc::CreateCustomChannel(Target(address), credentials_, arguments_);
  }

 private:
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  grpc::ChannelArguments arguments_;
};

}  // namespace

std::unique_ptr<Channels> NewNetworkChannels(const Security* security) {
  RouteGrpcLog();
  return std::make_unique<NetworkChannels>(security);
}

std::shared_ptr<grpc::Channel> InProcessChannels::Connect(const std::string& address) {
  absl::MutexLock lock(&mu_);
  if (auto it = servers_.find(address); it != servers_.end()) {
    return it->second->InProcessChannel(Arguments());
  }
  // Nobody serves there (yet): a channel whose calls fail with UNAVAILABLE.
  return grpc::CreateCustomChannel(absl::StrCat(kNobody, address),
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

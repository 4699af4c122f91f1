#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/channel.h"
#include "grpcpp/server.h"

namespace tessera {

// The largest message between processes. Pulls and pushes stay far below it: larger ones are cut
// into several messages.
inline constexpr int kMaxMessageBytes = 64 << 20;
// The most bytes of keys and gradients of one push to one ps, in all its messages.
inline constexpr uint64_t kMaxPushBytes = 1 << 30;

// After kKeepaliveTimeMs without traffic a connection pings its peer; without an answer within
// kKeepaliveTimeoutMs it is closed.
inline constexpr int kKeepaliveTimeMs = 10000;
inline constexpr int kKeepaliveTimeoutMs = 5000;

// The interface between a client and the network: turns an address into a channel. Thread-safe.
class Channels {
 public:
  virtual ~Channels() = default;
  // Never null. A channel to an address where nobody listens fails its calls with UNAVAILABLE.
  // "host:port,host:port,...": connects to the first of them that accepts. An address that refuses
  // is skipped at once, one that does not answer after 5 s. When the connection is lost, all are
  // tried again in that order.
  virtual std::shared_ptr<grpc::Channel> Connect(const std::string& address) = 0;
};

class Security;

// TCP channels, with TLS and a token if `security` is given, which then outlives all channels. The
// names in a list of addresses are looked up here, which may block, and not again by the channel;
// the name of a single address is looked up for each of its connections.
std::unique_ptr<Channels> NewNetworkChannels(const Security* security = nullptr);

// Connects servers and clients of one process over gRPC's in-process transport: messages are really
// serialised, no socket is opened. A server is found under its `listen` name
// (ServerOptions::in_process) until it stops.
class InProcessChannels final : public Channels {
 public:
  std::shared_ptr<grpc::Channel> Connect(const std::string& address) override;
  void Add(const std::string& address, grpc::Server* server);
  void Remove(const std::string& address);

 private:
  absl::Mutex mu_;
  std::map<std::string, grpc::Server*> servers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera

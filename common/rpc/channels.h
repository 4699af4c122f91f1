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

// No message between processes is larger. Pulls and pushes stay far below it: what is larger is
// cut.
inline constexpr int kMaxMessageBytes = 64 << 20;
// Of keys and gradients of one push to one ps, in all its messages.
inline constexpr uint64_t kMaxPushBytes = 1 << 30;

// A connection whose peer does not answer for so long after so long without a word is given up.
inline constexpr int kKeepaliveTimeMs = 10000;
inline constexpr int kKeepaliveTimeoutMs = 5000;

// The seam between a client and the network: how an address becomes a channel. Thread-safe.
class Channels {
 public:
  virtual ~Channels() = default;
  // Never null. A channel to an address where nobody listens fails its calls with UNAVAILABLE.
  // "host:port,host:port,...": to the first of them that takes the connection; one that refuses is
  // passed over at once, one that does not answer after 5 s. When the connection is lost, all are
  // tried again in that order.
  virtual std::shared_ptr<grpc::Channel> Connect(const std::string& address) = 0;
};

class Security;

// TCP, with TLS and a token if `security` is given, which then outlives all channels. The names of
// a list are looked up here, and not again by the channel; the name of a single address is by each
// of its connections. May block for that lookup.
std::unique_ptr<Channels> NewNetworkChannels(const Security* security = nullptr);

// Servers and clients of one process, over gRPC's in-process transport: every message is really
// serialised, no socket is opened. A server appears under the name that it was started with
// (ServerOptions::in_process) and leaves when it stops.
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

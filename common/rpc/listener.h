#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera {

// Accepts the TCP connections to an address. If the process has no file descriptor for one, but for
// those that are kept for its files (HasDescriptorForConnection), the listener logs that and goes
// on as soon as it has some; meanwhile connections wait in the operating system. (gRPC's own
// listeners, 1.51, accept nothing any more after that.)
//
// Owns one thread from Start on. One thread calls Start and Stop.
class Listener {
 public:
  // The callee owns `fd`, which is non-blocking; `listener_fd` is the socket that accepted it.
  using Take = std::function<void(int listener_fd, int fd)>;

  // Binds "host:port" on all addresses of the host, with an IPv6 host in brackets; port 0 takes a
  // free port, no host means all of this machine's addresses. Connections wait until Start.
  // UNAVAILABLE with the reason: the port is in use, or the address is not this machine's.
  // INVALID_ARGUMENT: `address` is malformed.
  static absl::StatusOr<std::unique_ptr<Listener>> Bind(const std::string& address);
  ~Listener();  // stops

  // host:port with the host as given and the port that was taken.
  const std::string& address() const { return address_; }
  // Starts accepting. The listener's thread calls `take` for each connection, and tell_takes(false)
  // when it cannot accept connections, tell_takes(true) when it can again.
  void Start(Take take, std::function<void(bool)> tell_takes);
  // Refuses connections from here on; `take` and `tell_takes` do not run after it returns. A second
  // call does nothing.
  void Stop();

 private:
  Listener() = default;
  void Run(const Take& take, const std::function<void(bool)>& tell_takes);
  // Accepts all waiting connections. 0, or the errno with which the process cannot accept them now.
  static int TakeAll(int listener, const Take& take);

  std::string address_;
  int port_ = 0;
  std::vector<int> sockets_;
  int wake_ = -1;  // readable once the thread must end
  std::thread thread_;
};

}  // namespace tessera

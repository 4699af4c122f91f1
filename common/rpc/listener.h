#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera {

// Takes the TCP connections that come to an address. A process that has no file descriptor for one
// says so and goes on when it has some; meanwhile connections wait with the operating system.
// (gRPC's own listeners, 1.51, take nothing any more after that.)
//
// Owns one thread from Start on. Start and Stop are called by one thread.
class Listener {
 public:
  // `fd` is the callee's, non-blocking; `listener_fd` is who took it.
  using Take = std::function<void(int listener_fd, int fd)>;

  // Binds "host:port" on all addresses that the host has, an IPv6 one in brackets; port 0 takes a
  // free one, no host means all of this machine's. Connections wait until Start. UNAVAILABLE with
  // the reason: the port is in use, the address is not this machine's. INVALID_ARGUMENT: it is no
  // address.
  static absl::StatusOr<std::unique_ptr<Listener>> Bind(const std::string& address);
  ~Listener();  // stops

  // host:port as given, with the port that was taken.
  const std::string& address() const { return address_; }
  // `tell_takes` hears, in the same thread, when connections cannot be taken (false), and when they
  // are again.
  void Start(Take take, std::function<void(bool)> tell_takes);
  // Connections are refused from here on; neither of both runs any more. A second call does
  // nothing.
  void Stop();

 private:
  Listener() = default;
  void Run(const Take& take, const std::function<void(bool)>& tell_takes);
  // Those that have come; an errno where the process cannot take them now.
  static int TakeAll(int listener, const Take& take);

  std::string address_;
  int port_ = 0;
  std::vector<int> sockets_;
  int wake_ = -1;  // readable once it is to end
  std::thread thread_;
};

}  // namespace tessera

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/rpc/security.h"

namespace tessera::bench {

// A ps, one with TLS and an echo server in a process of their own, as they are in life: client and
// servers then share nothing but the processors and loopback.
class WireServers {
 public:
  // Forks: call it before this process has threads.
  // `max_bytes` bounds what the ps has in hand, and what it has not sent.
  static absl::StatusOr<std::unique_ptr<WireServers>> Start(uint64_t max_bytes);
  ~WireServers();  // ends the process

  // It has a data folder, for push logs.
  const std::string& ps() const { return ps_; }
  const std::string& secured_ps() const { return secured_ps_; }
  const std::string& echo() const { return echo_; }
  // What a client of secured_ps needs.
  const SecurityFiles& security() const { return security_; }
  // Resident bytes of the servers' process.
  uint64_t ResidentBytes() const;

 private:
  WireServers(int pid, int to, int from) : pid_(pid), to_(to), from_(from) {}

  const int pid_;
  const int to_;    // it ends when this pipe is closed
  const int from_;  // the addresses come out of this one
  std::string ps_;
  std::string secured_ps_;
  std::string echo_;
  std::string folder_;  // of certificates and logs
  SecurityFiles security_;
};

}  // namespace tessera::bench

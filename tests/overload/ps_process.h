#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace tessera::overload {

// A ps without a master, in a process of its own, so that its resident memory is nobody else's.
class PsProcess {
 public:
  struct Options {
    std::string folder;             // for rows that leave memory
    uint64_t memory_bytes = 0;      // of it
    uint64_t max_queued_bytes = 0;  // of requests in hand; more are refused
  };
  // Forks: call it before this process has threads.
  static absl::StatusOr<std::unique_ptr<PsProcess>> Start(const Options& options);
  ~PsProcess();  // ends it

  const std::string& address() const { return address_; }
  uint64_t ResidentBytes() const;
  // Its metrics as of now, in Prometheus' text form.
  absl::StatusOr<std::string> Metrics() const;

 private:
  PsProcess(int pid, int to, int from) : pid_(pid), to_(to), from_(from) {}

  const int pid_;
  const int to_;    // a byte asks for the metrics; it ends when this pipe is closed
  const int from_;  // texts, each with its length before it
  std::string address_;
};

}  // namespace tessera::overload

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tessera::bench {

// A redis-server of our own on loopback, as a peer: keys of 8 bytes, values of raw floats.
class RedisPeer {
 public:
  // NOT_FOUND: redis-server is not installed.
  static absl::StatusOr<std::unique_ptr<RedisPeer>> Start();
  ~RedisPeer();  // ends the server

  // Sets keys 0 .. count-1 to `value_bytes` bytes each.
  absl::Status Fill(uint64_t count, uint64_t value_bytes);
  // Pipelined MSETs of `per_command` keys each, to `value_bytes` bytes; every answer is read.
  absl::Status Set(absl::Span<const uint64_t> keys, uint64_t value_bytes, size_t per_command);
  // Pipelined MGETs of `per_command` keys each; every answer is read to its end. INTERNAL: a value
  // of another size.
  absl::Status Get(absl::Span<const uint64_t> keys, uint64_t value_bytes, size_t per_command);

 private:
  RedisPeer(int pid, int socket) : pid_(pid), socket_(socket) {}
  absl::Status Exchange(const std::string& commands, absl::FunctionRef<absl::Status()> read);
  absl::Status Write(const std::string& bytes);
  // The next line without its end, and the next n bytes with their line end.
  absl::StatusOr<std::string> Line();
  absl::Status Skip(size_t n);
  absl::Status Refill();

  const int pid_;
  const int socket_;
  std::string in_;
  size_t at_ = 0;
};

}  // namespace tessera::bench

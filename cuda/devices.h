#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera::cuda {

// One card that CUDA can use.
struct Device {
  int index = 0;       // N of "cuda:N"
  std::string bus_id;  // "0000:3b:00.0", whatever index it has in another process
  std::string name;
  uint64_t memory_bytes = 0;
  int compute_major = 0;  // compute capability
  int compute_minor = 0;
};

// The cards of this machine, at least one, including those that are too old (compute_capability.h).
// FAILED_PRECONDITION says why there is none: built without CUDA, no driver, no card.
// UNAVAILABLE: what CUDA says of cards or a driver that fail. Thread-safe.
absl::StatusOr<std::vector<Device>> ListDevices();

}  // namespace tessera::cuda

#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "cuda/devices.h"

namespace tessera::cuda {

// What the kernels are compiled for at least (CMakeLists.txt): on an older card each of them fails.
constexpr int kLeastComputeMajor = 8;

// FAILED_PRECONDITION: the card cannot run them; names it, what it has and what is needed.
absl::Status CheckComputeCapability(const Device& device);

// Those that can; FAILED_PRECONDITION: there are some, and none can, as CheckComputeCapability.
absl::StatusOr<std::vector<Device>> WithComputeCapability(std::vector<Device> devices);

}  // namespace tessera::cuda

#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "cuda/devices.h"

namespace tessera::cuda {

// The oldest cards that the kernels are compiled for (CMakeLists.txt): on an older card every
// kernel fails.
constexpr int kLeastComputeMajor = 8;

// FAILED_PRECONDITION: the card cannot run the kernels; names the card, its capability and the
// least one.
absl::Status CheckComputeCapability(const Device& device);

// The devices that can run the kernels. FAILED_PRECONDITION, as from CheckComputeCapability: there
// are devices, but none can.
absl::StatusOr<std::vector<Device>> WithComputeCapability(std::vector<Device> devices);

}  // namespace tessera::cuda

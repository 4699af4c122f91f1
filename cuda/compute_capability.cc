#include "cuda/compute_capability.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera::cuda {

absl::Status CheckComputeCapability(const Device& device) {
  if (device.compute_major >= kLeastComputeMajor) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "cuda:", device.index, " (", device.name, ") has compute capability ", device.compute_major,
      ".", device.compute_minor, "; this build needs ", kLeastComputeMajor, ".0 or above"));
}

absl::StatusOr<std::vector<Device>> WithComputeCapability(std::vector<Device> devices) {
  absl::Status first;
  for (const Device& device : devices) first.Update(CheckComputeCapability(device));
  std::erase_if(devices, [](const Device& device) { return !CheckComputeCapability(device).ok(); });
  if (devices.empty() && !first.ok()) return first;
  return devices;
}

}  // namespace tessera::cuda

#include "absl/status/status.h"
#include "cuda/devices.h"

namespace tessera::cuda {

absl::StatusOr<std::vector<Device>> ListDevices() {
  return absl::FailedPreconditionError(
      "no CUDA device: this build has no CUDA; build with `cmake --preset cuda`");
}

}  // namespace tessera::cuda

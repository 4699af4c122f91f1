#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cuda/devices.h"

namespace tessera::cuda {

absl::StatusOr<std::vector<Device>> ListDevices() {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
    cudaGetLastError();  // it would be the next launch's
    return absl::FailedPreconditionError(
        absl::StrCat("no CUDA device: ",
                     error == cudaSuccess ? "the driver lists none" : cudaGetErrorString(error)));
  }
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties;
    char bus_id[32] = {};
    cudaError_t error = cudaGetDeviceProperties(&properties, i);
    if (error == cudaSuccess) error = cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), i);
    if (error != cudaSuccess) {
      cudaGetLastError();
      return absl::FailedPreconditionError(
          absl::StrCat("CUDA device ", i, ": ", cudaGetErrorString(error)));
    }
    devices.push_back({.index = i,
                       .bus_id = bus_id,
                       .name = properties.name,
                       .memory_bytes = properties.totalGlobalMem,
                       .compute_major = properties.major,
                       .compute_minor = properties.minor});
  }
  return devices;
}

}  // namespace tessera::cuda

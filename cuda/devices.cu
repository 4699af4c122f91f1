#include <cuda_runtime_api.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "cuda/devices.h"

namespace tessera::cuda {
namespace {

// A machine whose cards fail has cards: a job is not to go on without them.
absl::Status ErrorOf(cudaError_t error, absl::string_view what) {
  cudaGetLastError();  // it would be the next launch's
  const std::string text = absl::StrCat(what, ": ", cudaGetErrorString(error));
  const bool has_none = error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver ||
                        error == cudaErrorStubLibrary;
  return has_none ? absl::FailedPreconditionError(absl::StrCat("no CUDA device: ", text))
                  : absl::UnavailableError(text);
}

}  // namespace

absl::StatusOr<std::vector<Device>> ListDevices() {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    return ErrorOf(error, "list of CUDA devices");
  }
  if (count == 0) {
    return absl::FailedPreconditionError("no CUDA device: the driver lists none");
  }
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties;
    char bus_id[32] = {};
    cudaError_t error = cudaGetDeviceProperties(&properties, i);
    if (error == cudaSuccess) error = cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), i);
    if (error != cudaSuccess) return ErrorOf(error, absl::StrCat("CUDA device ", i));
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

#pragma once

// CUDA's own types of what a Stream holds. For .cu files that nvcc compiles.

#include <cuda_runtime_api.h>

#include "cuda/stream.h"

namespace tessera::cuda {

// The CUDA stream of the work, and that of copies beside it.
inline cudaStream_t Native(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.native());
}
inline cudaStream_t NativeCopies(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.native_copies());
}

}  // namespace tessera::cuda

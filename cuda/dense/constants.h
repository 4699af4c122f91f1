#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// Copies n numbers of the machine to the card, float or int32_t, as arguments of kernels: no copy
// waits for the work before it, and `from` may change when this returns. For few numbers: a kernel
// has 512 of them.
template <typename T>
void CopyConstants(Stream& stream, const T* from, T* to, int64_t n);

}  // namespace tessera::cuda

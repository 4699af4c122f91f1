#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// Copies n numbers, float or int32_t, from the machine to the card as arguments of kernels: the
// call does not wait for earlier work, and `from` may change once it returns. For few numbers: a
// kernel takes 512.
template <typename T>
void CopyConstants(Stream& stream, const T* from, T* to, int64_t n);

}  // namespace tessera::cuda

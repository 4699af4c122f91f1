#pragma once

#include <cstdint>
#include <limits>

#include "cuda/stream.h"

namespace tessera::cuda {

// *count += how many x[i] with i below n are NaN or have a magnitude above `most`; adds 0 only if
// there are none. Uses the stream's scratch.
void AddBeyond(Stream& stream, const float* x, int64_t n, float most, float* count);
// AddNonFinite counts those that are not finite.
inline void AddNonFinite(Stream& stream, const float* x, int64_t n, float* count) {
  AddBeyond(stream, x, n, std::numeric_limits<float>::max(), count);
}

// x[i] *= *factor for i below n.
void Multiply(Stream& stream, const float* factor, float* x, int64_t n);

}  // namespace tessera::cuda

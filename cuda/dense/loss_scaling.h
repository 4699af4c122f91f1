#pragma once

#include <cstdint>
#include <limits>

#include "cuda/stream.h"

namespace tessera::cuda {

// *count += how many of x[i] for i below n are no number, or larger than `most`: 0 only where there
// are none. Uses the stream's scratch.
void AddBeyond(Stream& stream, const float* x, int64_t n, float most, float* count);
// Of those that are not finite.
inline void AddNonFinite(Stream& stream, const float* x, int64_t n, float* count) {
  AddBeyond(stream, x, n, std::numeric_limits<float>::max(), count);
}

// x[i] *= *factor for i below n.
void Multiply(Stream& stream, const float* factor, float* x, int64_t n);

}  // namespace tessera::cuda

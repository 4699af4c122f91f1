#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// `indices` and `places` lie in the machine's memory (CopyConstants). Both use the stream's
// scratch.

// y [rows, count, inner] = x [rows, size, inner] at indices [count] of the middle axis.
void Gather(Stream& stream, const float* x, const int32_t* indices, int64_t count, float* y,
            int64_t rows, int64_t size, int64_t inner);

// dx [rows, size, inner] = for each index the sum of dy [rows, count, inner] over the places that
// have the index, 0 if there is none. `places` holds [different] the indices that occur; [different
// + 1] where the places of each begin in the list that follows, and the list's end; [count] the
// list.
void GatherGradient(Stream& stream, const float* dy, const int32_t* places, int64_t different,
                    int64_t count, float* dx, int64_t rows, int64_t size, int64_t inner);

}  // namespace tessera::cuda

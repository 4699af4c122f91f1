#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// y[i] = scale * x[i] where RandomBits16(*key, i) >= threshold, else 0, for i below n. y may be x.
// Applied to dy with the same key it gives dx. The key lies in the card's memory and differs in
// every step.
void Dropout(Stream& stream, const uint64_t* key, uint16_t threshold, float scale, const float* x,
             float* y, int64_t n);

}  // namespace tessera::cuda

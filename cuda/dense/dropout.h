#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// y[i] = scale * x[i] where RandomBits16(*key, i) >= threshold, else 0, for i below n. y may be x.
// Of a gradient with the same key: the gradient. The key is the card's, another in every step.
void Dropout(Stream& stream, const uint64_t* key, uint16_t threshold, float scale, const float* x,
             float* y, int64_t n);

}  // namespace tessera::cuda

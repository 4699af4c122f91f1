#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// y [rows, size] = `valid` in the first lengths[row] places of a row, `padding` in the others.
void SequenceMask(Stream& stream, const float* lengths, float* y, int64_t rows, int64_t size,
                  float valid, float padding);

}  // namespace tessera::cuda

#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// y = (x - mean) * weight * inverse + bias, over the rows of x [rows, width], all else [width].
// y may be x. Without weight and bias (null) they count as 1 and 0.
void BatchNormalization(Stream& stream, const float* x, int64_t rows, int64_t width,
                        const float* mean, const float* inverse, const float* weight,
                        const float* bias, float* y);

// dweight = sum dy (x - mean) * inverse and dbias = sum dy, over the rows. Uses the
// stream's scratch.
void BatchNormalizationParameterGradients(Stream& stream, const float* x, int64_t rows,
                                          int64_t width, const float* mean, const float* inverse,
                                          const float* dy, float* dweight, float* dbias);

// dx if mean and inverse were measured over x, given both gradients above. dx may be dy. Without
// weight (null) it counts as 1.
void BatchNormalizationBackward(Stream& stream, const float* x, int64_t rows, int64_t width,
                                const float* mean, const float* inverse, const float* weight,
                                const float* dweight, const float* dbias, const float* dy,
                                float* dx);

}  // namespace tessera::cuda

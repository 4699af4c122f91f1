#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// The sizes of layer normalisation: x is [rows, width]; weight and bias have `period` floats, a
// multiple of the width, and repeat over all of x.
struct LayerNormalizationShape {
  int64_t rows;
  int64_t width;
  int64_t period;
};

// All three functions use the stream's scratch.

// y = xhat * weight + bias, xhat being each row standardised (math::Standardization). xhat [rows,
// width] and inverse [rows] are kept for the gradients; null: nobody needs them. y may be x.
void LayerNormalization(Stream& stream, const LayerNormalizationShape& shape, float epsilon,
                        const float* x, const float* weight, const float* bias, float* y,
                        float* xhat, float* inverse);

// dweight = sum dy xhat and dbias = sum dy, over all floats that have that weight.
void LayerNormalizationParameterGradients(Stream& stream, const LayerNormalizationShape& shape,
                                          const float* xhat, const float* dy, float* dweight,
                                          float* dbias);

// dx from xhat, inverse and dy. dx may be dy.
void LayerNormalizationBackward(Stream& stream, const LayerNormalizationShape& shape,
                                const float* xhat, const float* inverse, const float* weight,
                                const float* dy, float* dx);

}  // namespace tessera::cuda

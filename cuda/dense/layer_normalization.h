#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// What layer normalisation is given: rows of x [rows, width], and weight and bias of `period`
// floats, a multiple of the width, that repeat over all of x.
struct LayerNormalizationShape {
  int64_t rows;
  int64_t width;
  int64_t period;
};

// y = xhat * weight + bias, xhat being each row standardised (math::Standardization). xhat [rows,
// width] and inverse [rows] are kept for the gradients; null: nobody needs them. y may be x.
void LayerNormalization(Stream& stream, const LayerNormalizationShape& shape, float epsilon,
                        const float* x, const float* weight, const float* bias, float* y,
                        float* xhat, float* inverse);

// dweight = sum dy xhat and dbias = sum dy, over all floats that have that weight.
void LayerNormalizationParameterGradients(Stream& stream, const LayerNormalizationShape& shape,
                                          const float* xhat, const float* dy, float* dweight,
                                          float* dbias);

// dx from what is kept and dy. dx may be dy.
void LayerNormalizationBackward(Stream& stream, const LayerNormalizationShape& shape,
                                const float* xhat, const float* inverse, const float* weight,
                                const float* dy, float* dx);

}  // namespace tessera::cuda

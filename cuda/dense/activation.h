#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// y[i] = f(x[i]) for i below n, for every formula of common/math/activation. y may be x.
template <typename Formula>
void Activate(Stream& stream, const typename Formula::Params& params, const float* x, float* y,
              int64_t n);

// dx[i] = dy[i] f'(x[i]), y being f(x). dx may be dy. If the derivative needs y alone, y may be
// passed as x.
template <typename Formula>
void ActivateBackward(Stream& stream, const typename Formula::Params& params, const float* x,
                      const float* y, const float* dy, float* dx, int64_t n);

}  // namespace tessera::cuda

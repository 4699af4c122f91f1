#pragma once

#include "cuda/dense/strided.h"
#include "cuda/stream.h"

namespace tessera::cuda {

// y = a where c is not 0, else b, broadcast: `axes` walks through y, its tensors are c, a and b.
// See common/math/selection.h.
void Where(Stream& stream, const StridedAxes<3>& axes, const float* c, const float* a,
           const float* b, float* y);

// da (kOf = 1) or db (2) = dy where that operand was chosen, else 0, summed over the axes in which
// it is broadcast.
template <int kOf>
void WhereGradient(Stream& stream, const StridedAxes<3>& axes, const float* c, const float* dy,
                   float* to);

}  // namespace tessera::cuda

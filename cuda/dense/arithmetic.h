#pragma once

#include "cuda/dense/strided.h"
#include "cuda/stream.h"

namespace tessera::cuda {

// The formulas of common/math/arithmetic.h with broadcasting: `axes` walks through y, its tensors
// are a and b.

// y = f(a, b): Addition, Subtraction, Multiplication, Division, Maximum, Minimum. y may be a or b
// if that operand is not broadcast.
template <typename Formula>
void Arithmetic(Stream& stream, const StridedAxes<2>& axes, const float* a, const float* b,
                float* y);

// da (kOf = 0) or db (1) = dy df/da or dy df/db, summed over the axes in which a or b is broadcast.
// Not for Addition: see SumStrided.
template <typename Formula, int kOf>
void ArithmeticGradient(Stream& stream, const StridedAxes<2>& axes, const float* a, const float* b,
                        const float* dy, float* to);

}  // namespace tessera::cuda

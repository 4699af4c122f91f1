#pragma once

#include <cstddef>
#include <cstdint>

#include "common/math/host_device.h"
#include "cuda/quotient.h"
#include "cuda/stream.h"

namespace tessera::cuda {

constexpr int kMostAxes = 10;

// Where a float lies in each of N tensors.
template <size_t N>
struct Offsets {
  int64_t of[N] = {};
};

// Where the floats of a row-major tensor, first to last, lie in N other tensors, which are
// broadcast (a stride of 0) or have their axes permuted. Plain numbers, for kernels to capture.
template <size_t N>
struct StridedAxes {
  int count = 0;  // innermost first; none of size 1
  int64_t sizes[kMostAxes] = {};
  int64_t strides[kMostAxes][N] = {};

  // Adds an axis outside of those before; there may be kMostAxes.
  void Append(int64_t size, const Offsets<N>& stride) {
    if (size == 1) return;
    sizes[count] = size;
    for (size_t k = 0; k < N; ++k) strides[count][k] = stride.of[k];
    ++count;
  }

  int64_t floats() const {
    int64_t product = 1;
    for (int axis = 0; axis < count; ++axis) product *= sizes[axis];
    return product;
  }

  // The offsets of float i.
  TESSERA_HOST_DEVICE Offsets<N> At(int64_t i) const {
    Offsets<N> at;
    for (int axis = 0; axis < count; ++axis) {
      const int64_t outer = axis + 1 < count ? Quotient(i, sizes[axis]) : 0;
      const int64_t index = i - outer * sizes[axis];
      for (size_t k = 0; k < N; ++k) at.of[k] += index * strides[axis][k];
      i = outer;
    }
    return at;
  }
};

// y[i] = factor * x[axes.At(i)] for every float of y.
void CopyStrided(Stream& stream, const StridedAxes<1>& axes, const float* x, float* y,
                 float factor = 1);

// y[o] = factor * the sum of all x[i] with axes.At(i) = o: the gradient of CopyStrided, and a
// reduction over the axes of stride 0. The other strides are those of a row-major tensor.
void SumStrided(Stream& stream, const StridedAxes<1>& axes, const float* x, float* y,
                float factor = 1);

}  // namespace tessera::cuda

#include "cuda/dense/strided.h"

#include "cuda/dense/sum_axes.h"
#include "cuda/launch.h"

namespace tessera::cuda {

void CopyStrided(Stream& stream, const StridedAxes<1>& axes, const float* x, float* y,
                 float factor) {
  ForEach(stream, "strided copy", axes.floats(),
          [=] TESSERA_HOST_DEVICE(int64_t i) { y[i] = factor * x[axes.At(i).of[0]]; });
}

void SumStrided(Stream& stream, const StridedAxes<1>& axes, const float* x, float* y,
                float factor) {
  SumAxes<1>(
      stream, "sum over axes", axes, 0,
      [=] TESSERA_HOST_DEVICE(const Offsets<2>& at) { return x[at.of[1]]; },
      [=] TESSERA_HOST_DEVICE(int64_t o, float sum) { y[o] = factor * sum; });
}

}  // namespace tessera::cuda

#include "cuda/dense/where.h"

#include "common/math/selection.h"
#include "cuda/dense/sum_axes.h"
#include "cuda/launch.h"

namespace tessera::cuda {

void Where(Stream& stream, const StridedAxes<3>& axes, const float* c, const float* a,
           const float* b, float* y) {
  ForEach(stream, "where", axes.floats(), [=] TESSERA_HOST_DEVICE(int64_t i) {
    const Offsets<3> at = axes.At(i);
    y[i] = math::Selection::Value(c[at.of[0]], a[at.of[1]], b[at.of[2]]);
  });
}

template <int kOf>
void WhereGradient(Stream& stream, const StridedAxes<3>& axes, const float* c, const float* dy,
                   float* to) {
  SumAxes<3>(
      stream, "where's gradient", axes, kOf,
      [=] TESSERA_HOST_DEVICE(const Offsets<4>& at) {
        return math::Selection::Gradient<kOf>(c[at.of[0]], dy[at.of[3]]);
      },
      [=] TESSERA_HOST_DEVICE(int64_t o, float sum) { to[o] = sum; });
}

template void WhereGradient<1>(Stream&, const StridedAxes<3>&, const float*, const float*, float*);
template void WhereGradient<2>(Stream&, const StridedAxes<3>&, const float*, const float*, float*);

}  // namespace tessera::cuda

#include "cuda/dense/accumulate.h"

#include "cuda/pack.h"

namespace tessera::cuda {

void Accumulate(Stream& stream, const float* from, float* to, int64_t n) {
  Map(
      stream, "sum of gradients", n,
      [] TESSERA_HOST_DEVICE(int64_t, float sum, float more) { return sum + more; }, to, to, from);
}

}  // namespace tessera::cuda

#include "cuda/dense/activation.h"

#include "common/math/activation/all.h"
#include "cuda/pack.h"

namespace tessera::cuda {

template <typename Formula>
void Activate(Stream& stream, const typename Formula::Params& params, const float* x, float* y,
              int64_t n) {
  Map(
      stream, "activation", n,
      [=] TESSERA_HOST_DEVICE(int64_t, float of) { return Formula::Value(params, of); }, y, x);
}

template <typename Formula>
void ActivateBackward(Stream& stream, const typename Formula::Params& params, const float* x,
                      const float* y, const float* dy, float* dx, int64_t n) {
  Map(
      stream, "activation's gradient", n,
      [=] TESSERA_HOST_DEVICE(int64_t, float of, float value, float slope) {
        return slope * Formula::Derivative(params, of, value);
      },
      dx, x, y, dy);
}

#define TESSERA_ACTIVATION(Formula, file)                                                         \
  template void Activate<math::Formula>(Stream&, const math::Formula::Params&, const float*,      \
                                        float*, int64_t);                                         \
  template void ActivateBackward<math::Formula>(Stream&, const math::Formula::Params&,            \
                                                const float*, const float*, const float*, float*, \
                                                int64_t);
TESSERA_ACTIVATIONS(TESSERA_ACTIVATION)
#undef TESSERA_ACTIVATION

}  // namespace tessera::cuda

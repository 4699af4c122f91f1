#include "cuda/dense/activation.h"

#include "common/math/activation/abs.h"
#include "common/math/activation/atan.h"
#include "common/math/activation/ceil.h"
#include "common/math/activation/clip.h"
#include "common/math/activation/cos.h"
#include "common/math/activation/elu.h"
#include "common/math/activation/erf.h"
#include "common/math/activation/exp.h"
#include "common/math/activation/floor.h"
#include "common/math/activation/gelu.h"
#include "common/math/activation/hard_sigmoid.h"
#include "common/math/activation/leaky_relu.h"
#include "common/math/activation/log.h"
#include "common/math/activation/pow.h"
#include "common/math/activation/relu.h"
#include "common/math/activation/round.h"
#include "common/math/activation/selu.h"
#include "common/math/activation/sigmoid.h"
#include "common/math/activation/silu.h"
#include "common/math/activation/sin.h"
#include "common/math/activation/softplus.h"
#include "common/math/activation/sqrt.h"
#include "common/math/activation/step.h"
#include "common/math/activation/tanh.h"
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

#define TESSERA_ACTIVATION(Formula)                                                                \
  template void Activate<Formula>(Stream&, const Formula::Params&, const float*, float*, int64_t); \
  template void ActivateBackward<Formula>(Stream&, const Formula::Params&, const float*,           \
                                          const float*, const float*, float*, int64_t);

TESSERA_ACTIVATION(math::Abs)
TESSERA_ACTIVATION(math::Atan)
TESSERA_ACTIVATION(math::Ceil)
TESSERA_ACTIVATION(math::Clip)
TESSERA_ACTIVATION(math::Cos)
TESSERA_ACTIVATION(math::Elu)
TESSERA_ACTIVATION(math::Erf)
TESSERA_ACTIVATION(math::Exp)
TESSERA_ACTIVATION(math::Floor)
TESSERA_ACTIVATION(math::Gelu)
TESSERA_ACTIVATION(math::HardSigmoid)
TESSERA_ACTIVATION(math::LeakyRelu)
TESSERA_ACTIVATION(math::Log)
TESSERA_ACTIVATION(math::Pow)
TESSERA_ACTIVATION(math::Relu)
TESSERA_ACTIVATION(math::Round)
TESSERA_ACTIVATION(math::Selu)
TESSERA_ACTIVATION(math::Sigmoid)
TESSERA_ACTIVATION(math::Silu)
TESSERA_ACTIVATION(math::Sin)
TESSERA_ACTIVATION(math::Softplus)
TESSERA_ACTIVATION(math::Sqrt)
TESSERA_ACTIVATION(math::Step)
TESSERA_ACTIVATION(math::Tanh)

}  // namespace tessera::cuda

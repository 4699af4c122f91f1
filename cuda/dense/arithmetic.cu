#include "cuda/dense/arithmetic.h"

#include "common/math/arithmetic.h"
#include "cuda/dense/sum_axes.h"
#include "cuda/pack.h"

namespace tessera::cuda {
namespace {

// Whether both operands have the form of the result: nothing is broadcast.
bool LieAlike(const StridedAxes<2>& axes) {
  int64_t floats = 1;
  for (int axis = 0; axis < axes.count; ++axis) {
    for (const int64_t stride : axes.strides[axis]) {
      if (stride != floats) return false;
    }
    floats *= axes.sizes[axis];
  }
  return true;
}

}  // namespace

template <typename Formula>
void Arithmetic(Stream& stream, const StridedAxes<2>& axes, const float* a, const float* b,
                float* y) {
  const char* const what = "arithmetic";
  if (LieAlike(axes)) {
    return Map(
        stream, what, axes.floats(),
        [] TESSERA_HOST_DEVICE(int64_t, float left, float right) {
          return Formula::Value(left, right);
        },
        y, a, b);
  }
  ForEach(stream, what, axes.floats(), [=] TESSERA_HOST_DEVICE(int64_t i) {
    const Offsets<2> at = axes.At(i);
    y[i] = Formula::Value(a[at.of[0]], b[at.of[1]]);
  });
}

template <typename Formula, int kOf>
void ArithmeticGradient(Stream& stream, const StridedAxes<2>& axes, const float* a, const float* b,
                        const float* dy, float* to) {
  const char* const what = "arithmetic's gradient";
  if (LieAlike(axes)) {
    return Map(
        stream, what, axes.floats(),
        [] TESSERA_HOST_DEVICE(int64_t, float left, float right, float slope) {
          return Formula::template Gradient<kOf>(left, right, slope);
        },
        to, a, b, dy);
  }
  SumAxes<2>(
      stream, what, axes, kOf,
      [=] TESSERA_HOST_DEVICE(const Offsets<3>& at) {
        return Formula::template Gradient<kOf>(a[at.of[0]], b[at.of[1]], dy[at.of[2]]);
      },
      [=] TESSERA_HOST_DEVICE(int64_t o, float sum) { to[o] = sum; });
}

#define TESSERA_ARITHMETIC(Formula)                                                             \
  template void Arithmetic<Formula>(Stream&, const StridedAxes<2>&, const float*, const float*, \
                                    float*);
#define TESSERA_ARITHMETIC_GRADIENT(Formula, kOf)                                              \
  template void ArithmeticGradient<Formula, kOf>(Stream&, const StridedAxes<2>&, const float*, \
                                                 const float*, const float*, float*);

TESSERA_ARITHMETIC(math::Addition)
TESSERA_ARITHMETIC(math::Subtraction)
TESSERA_ARITHMETIC_GRADIENT(math::Subtraction, 0)
TESSERA_ARITHMETIC_GRADIENT(math::Subtraction, 1)
TESSERA_ARITHMETIC(math::Multiplication)
TESSERA_ARITHMETIC_GRADIENT(math::Multiplication, 0)
TESSERA_ARITHMETIC_GRADIENT(math::Multiplication, 1)
TESSERA_ARITHMETIC(math::Division)
TESSERA_ARITHMETIC_GRADIENT(math::Division, 0)
TESSERA_ARITHMETIC_GRADIENT(math::Division, 1)
TESSERA_ARITHMETIC(math::Maximum)
TESSERA_ARITHMETIC_GRADIENT(math::Maximum, 0)
TESSERA_ARITHMETIC_GRADIENT(math::Maximum, 1)
TESSERA_ARITHMETIC(math::Minimum)
TESSERA_ARITHMETIC_GRADIENT(math::Minimum, 0)
TESSERA_ARITHMETIC_GRADIENT(math::Minimum, 1)

}  // namespace tessera::cuda

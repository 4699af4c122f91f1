// Sub, Mul, Div, Max and Min of two tensors, broadcast as ONNX does.
#include "common/math/arithmetic.h"
#include "common/status_macros.h"
#include "cuda/dense/arithmetic.h"
#include "worker/dense/ops/broadcast.h"
#include "worker/dense/ops/cuda_strided.h"
#include "worker/dense/ops/lane_sum.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

// y = f(a, b);  da = dy df/da, db = dy df/db, summed over the axes in which a or b is broadcast.
template <typename Formula>
class Binary final : public Op {
 public:
  Binary(const Shape& a, const Shape& b, const Shape& output)
      : rows_(BroadcastRows<2>(output, {a, b})), whole_{a == output, b == output} {
    outputs_ = {output};
  }

  bool BySample() const override { return true; }

  void Forward(const ForwardPass& pass) const override {
    rows_.ForEach(pass.batch, [&](size_t at, auto begin, size_t count, auto stride) {
      const float* __restrict a = pass.inputs[0].data() + begin[0];
      const float* __restrict b = pass.inputs[1].data() + begin[1];
      float* __restrict y = pass.outputs[0].data() + at;
      Row(a, stride[0], b, stride[1], count,
          [&](size_t i, float p, float q) { y[i] = Formula::Value(p, q); });
    });
  }

  void Backward(const BackwardPass& pass) const override {
    InputGradient<0>(pass);
    InputGradient<1>(pass);
  }

  bool RunsOnCuda() const override { return FitsCuda(rows_); }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    cuda::Arithmetic<Formula>(stream, CudaStrided(rows_, pass.batch), pass.inputs[0].data(),
                              pass.inputs[1].data(), pass.outputs[0].data());
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    CudaInputGradient<0>(stream, pass);
    CudaInputGradient<1>(stream, pass);
  }

 private:
  // Strides are 0 or 1; element(i, a, b) for every element of a row.
  template <typename Element>
  static void Row(const float* __restrict a, size_t a_stride, const float* __restrict b,
                  size_t b_stride, size_t count, const Element& element) {
    if (a_stride == 0) {
      const float value = *a;
      for (size_t i = 0; i < count; ++i) element(i, value, b[b_stride * i]);
    } else if (b_stride == 0) {
      const float value = *b;
      for (size_t i = 0; i < count; ++i) element(i, a[i], value);
    } else {
      for (size_t i = 0; i < count; ++i) element(i, a[i], b[i]);
    }
  }

  template <int kOf>
  void InputGradient(const BackwardPass& pass) const {
    const absl::Span<float> dx = pass.input_gradients[kOf];
    if (dx.empty()) return;
    if (!whole_[kOf]) std::fill(dx.begin(), dx.end(), 0.0f);
    rows_.ForEach(pass.batch, [&](size_t at, auto begin, size_t count, auto stride) {
      const float* __restrict a = pass.inputs[0].data() + begin[0];
      const float* __restrict b = pass.inputs[1].data() + begin[1];
      const float* __restrict dy = pass.output_gradients[0].data() + at;
      float* __restrict to = dx.data() + begin[kOf];
      if (stride[kOf] == 0) {
        const size_t other = stride[1 - kOf];
        *to += LaneSum(count, [&](size_t i) {
          return Formula::template Gradient<kOf>(kOf == 0 ? *a : a[other * i],
                                                 kOf == 1 ? *b : b[other * i], dy[i]);
        });
      } else if (whole_[kOf]) {
        Row(a, stride[0], b, stride[1], count, [&](size_t i, float p, float q) {
          to[i] = Formula::template Gradient<kOf>(p, q, dy[i]);
        });
      } else {
        Row(a, stride[0], b, stride[1], count, [&](size_t i, float p, float q) {
          to[i] += Formula::template Gradient<kOf>(p, q, dy[i]);
        });
      }
    });
  }

  template <int kOf>
  void CudaInputGradient(cuda::Stream& stream, const BackwardPass& pass) const {
    const absl::Span<float> dx = pass.input_gradients[kOf];
    if (dx.empty()) return;
    cuda::ArithmeticGradient<Formula, kOf>(stream, CudaStrided(rows_, pass.batch),
                                           pass.inputs[0].data(), pass.inputs[1].data(),
                                           pass.output_gradients[0].data(), dx.data());
  }

  const StridedRows<2> rows_;
  const bool whole_[2];  // not broadcast
};

template <typename Formula>
absl::StatusOr<std::unique_ptr<Op>> New(absl::Span<const Shape> inputs, OptionReader& options) {
  TESSERA_RETURN_IF_ERROR(options.Finish());
  Shape output;
  TESSERA_RETURN_IF_ERROR(
      ExpectShapes(inputs.size() == 2 && BroadcastShape(inputs, &output),
                   "two inputs of one shape, or of one rank with 1 where they differ", inputs));
  return std::make_unique<Binary<Formula>>(inputs[0], inputs[1], output);
}

absl::StatusOr<std::unique_ptr<Op>> NewDiv(absl::Span<const Shape> inputs, OptionReader& options) {
  return New<math::Division>(inputs, options);
}
absl::StatusOr<std::unique_ptr<Op>> NewMax(absl::Span<const Shape> inputs, OptionReader& options) {
  return New<math::Maximum>(inputs, options);
}
absl::StatusOr<std::unique_ptr<Op>> NewMin(absl::Span<const Shape> inputs, OptionReader& options) {
  return New<math::Minimum>(inputs, options);
}
absl::StatusOr<std::unique_ptr<Op>> NewMul(absl::Span<const Shape> inputs, OptionReader& options) {
  return New<math::Multiplication>(inputs, options);
}
absl::StatusOr<std::unique_ptr<Op>> NewSub(absl::Span<const Shape> inputs, OptionReader& options) {
  return New<math::Subtraction>(inputs, options);
}

}  // namespace

std::vector<OpEntry> OpsOfBinary() {
  return {{"Div", "divide", &NewDiv},
          {"Max", "maximum", &NewMax},
          {"Min", "minimum", &NewMin},
          {"Mul", "multiply", &NewMul},
          {"Sub", "subtract", &NewSub}};
}

}  // namespace tessera::worker

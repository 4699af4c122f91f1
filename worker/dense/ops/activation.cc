#include <memory>
#include <type_traits>

#include "common/math/activations.h"
#include "common/status_macros.h"
#include "cuda/dense/activation.h"
#include "worker/dense/ops/map_elements.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

// Whether the derivative needs y alone, not x.
template <typename Formula>
constexpr bool kDerivativeOfOutput =
    std::is_same_v<Formula, math::Relu> || std::is_same_v<Formula, math::Sigmoid> ||
    std::is_same_v<Formula, math::Tanh>;

// y = f(x), element by element: the CPU's loop over every formula of common/math/activation.
//   dx = dy f'(x)
template <typename Formula>
class Activation final : public Op {
 public:
  Activation(const Shape& shape, typename Formula::Params params) : params_(params) {
    outputs_ = {shape};
  }

  bool BySample() const override { return true; }
  bool ForwardInPlace() const override { return kDerivativeOfOutput<Formula>; }
  bool BackwardInPlace() const override { return true; }

  void Forward(const ForwardPass& pass) const override {
    const typename Formula::Params params = params_;
    MapElements(pass.inputs[0].data(), pass.outputs[0].data(), pass.outputs[0].size(),
                [&](size_t, float x) { return Formula::Value(params, x); });
  }

  void Backward(const BackwardPass& pass) const override {
    const typename Formula::Params params = params_;
    const float* __restrict y = pass.outputs[0].data();
    // A rectifier's y has the sign of its x.
    const float* __restrict x = kDerivativeOfOutput<Formula> ? y : pass.inputs[0].data();
    MapElements(pass.output_gradients[0].data(), pass.input_gradients[0].data(),
                pass.input_gradients[0].size(),
                [&](size_t i, float dy) { return dy * Formula::Derivative(params, x[i], y[i]); });
  }

  bool RunsOnCuda() const override { return true; }
  bool IsRelu() const override { return std::is_same_v<Formula, math::Relu>; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    cuda::Activate<Formula>(stream, params_, pass.inputs[0].data(), pass.outputs[0].data(),
                            pass.outputs[0].size());
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    const float* const y = pass.outputs[0].data();
    cuda::ActivateBackward<Formula>(stream, params_,
                                    kDerivativeOfOutput<Formula> ? y : pass.inputs[0].data(), y,
                                    pass.output_gradients[0].data(), pass.input_gradients[0].data(),
                                    pass.input_gradients[0].size());
  }

 private:
  const typename Formula::Params params_;
};

// The options have been read into `params`.
template <typename Formula>
absl::StatusOr<std::unique_ptr<Op>> New(absl::Span<const Shape> inputs, OptionReader& options,
                                        typename Formula::Params params) {
  TESSERA_RETURN_IF_ERROR(options.Finish());
  TESSERA_RETURN_IF_ERROR(ExpectShapes(inputs.size() == 1, "one input", inputs));
  return std::make_unique<Activation<Formula>>(inputs[0], params);
}

absl::StatusOr<std::unique_ptr<Op>> NewAbs(absl::Span<const Shape> inputs, OptionReader& options) {
  return New<math::Abs>(inputs, options, {});
}

// Options: min (none), max (none).
absl::StatusOr<std::unique_ptr<Op>> NewClip(absl::Span<const Shape> inputs, OptionReader& options) {
  math::Clip::Params params;
  params.min = static_cast<float>(options.Number("min", params.min, params.min, params.max));
  params.max = static_cast<float>(options.Number("max", params.max, params.min, params.max));
  return New<math::Clip>(inputs, options, params);
}

absl::StatusOr<std::unique_ptr<Op>> NewCos(absl::Span<const Shape> inputs, OptionReader& options) {
  return New<math::Cos>(inputs, options, {});
}
absl::StatusOr<std::unique_ptr<Op>> NewAtan(absl::Span<const Shape> inputs, OptionReader& options) {
  return New<math::Atan>(inputs, options, {});
}
absl::StatusOr<std::unique_ptr<Op>> NewCeil(absl::Span<const Shape> inputs, OptionReader& options) {
  return New<math::Ceil>(inputs, options, {});
}
absl::StatusOr<std::unique_ptr<Op>> NewFloor(absl::Span<const Shape> inputs,
                                             OptionReader& options) {
  return New<math::Floor>(inputs, options, {});
}
absl::StatusOr<std::unique_ptr<Op>> NewRound(absl::Span<const Shape> inputs,
                                             OptionReader& options) {
  return New<math::Round>(inputs, options, {});
}
absl::StatusOr<std::unique_ptr<Op>> NewSin(absl::Span<const Shape> inputs, OptionReader& options) {
  return New<math::Sin>(inputs, options, {});
}
absl::StatusOr<std::unique_ptr<Op>> NewStep(absl::Span<const Shape> inputs, OptionReader& options) {
  return New<math::Step>(inputs, options, {});
}

// Options: exponent, a number (required).
absl::StatusOr<std::unique_ptr<Op>> NewPow(absl::Span<const Shape> inputs, OptionReader& options) {
  if (!options.Has("exponent")) options.Fail("exponent", "must be set: a number, such as 3");
  math::Pow::Params params;
  params.exponent = static_cast<float>(options.Number("exponent", 1, -1e3, 1e3));
  return New<math::Pow>(inputs, options, params);
}

// Options: alpha, minus the limit at minus infinity (1).
absl::StatusOr<std::unique_ptr<Op>> NewElu(absl::Span<const Shape> inputs, OptionReader& options) {
  math::Elu::Params params;
  params.alpha = static_cast<float>(options.Number("alpha", 1, 0, 1e6));
  return New<math::Elu>(inputs, options, params);
}

absl::StatusOr<std::unique_ptr<Op>> NewErf(absl::Span<const Shape> inputs, OptionReader& options) {
  return New<math::Erf>(inputs, options, {});
}
absl::StatusOr<std::unique_ptr<Op>> NewSqrt(absl::Span<const Shape> inputs, OptionReader& options) {
  return New<math::Sqrt>(inputs, options, {});
}

absl::StatusOr<std::unique_ptr<Op>> NewExp(absl::Span<const Shape> inputs, OptionReader& options) {
  return New<math::Exp>(inputs, options, {});
}

// Options: alpha, the slope (0.2); beta, the value at 0 (0.5).
absl::StatusOr<std::unique_ptr<Op>> NewHardSigmoid(absl::Span<const Shape> inputs,
                                                   OptionReader& options) {
  math::HardSigmoid::Params params;
  params.alpha = static_cast<float>(options.Number("alpha", 0.2, -1e6, 1e6));
  params.beta = static_cast<float>(options.Number("beta", 0.5, -1e6, 1e6));
  return New<math::HardSigmoid>(inputs, options, params);
}

absl::StatusOr<std::unique_ptr<Op>> NewLog(absl::Span<const Shape> inputs, OptionReader& options) {
  return New<math::Log>(inputs, options, {});
}

// Options: alpha (1.67326...), gamma (1.05070...).
absl::StatusOr<std::unique_ptr<Op>> NewSelu(absl::Span<const Shape> inputs, OptionReader& options) {
  math::Selu::Params params;
  params.alpha = static_cast<float>(options.Number("alpha", params.alpha, 0, 1e6));
  params.gamma = static_cast<float>(options.Number("gamma", params.gamma, 0, 1e6));
  return New<math::Selu>(inputs, options, params);
}

// Options: alpha, the slope below 0 (0.01).
absl::StatusOr<std::unique_ptr<Op>> NewLeakyRelu(absl::Span<const Shape> inputs,
                                                 OptionReader& options) {
  math::LeakyRelu::Params params;
  params.slope = static_cast<float>(options.Number("alpha", 0.01, -1e6, 1e6));
  return New<math::LeakyRelu>(inputs, options, params);
}

absl::StatusOr<std::unique_ptr<Op>> NewGelu(absl::Span<const Shape> inputs, OptionReader& options) {
  return New<math::Gelu>(inputs, options, {});
}
absl::StatusOr<std::unique_ptr<Op>> NewRelu(absl::Span<const Shape> inputs, OptionReader& options) {
  return New<math::Relu>(inputs, options, {});
}
absl::StatusOr<std::unique_ptr<Op>> NewSigmoid(absl::Span<const Shape> inputs,
                                               OptionReader& options) {
  return New<math::Sigmoid>(inputs, options, {});
}
absl::StatusOr<std::unique_ptr<Op>> NewSilu(absl::Span<const Shape> inputs, OptionReader& options) {
  return New<math::Silu>(inputs, options, {});
}
absl::StatusOr<std::unique_ptr<Op>> NewSoftplus(absl::Span<const Shape> inputs,
                                                OptionReader& options) {
  return New<math::Softplus>(inputs, options, {});
}
absl::StatusOr<std::unique_ptr<Op>> NewTanh(absl::Span<const Shape> inputs, OptionReader& options) {
  return New<math::Tanh>(inputs, options, {});
}

}  // namespace

std::vector<OpEntry> OpsOfActivation() {
  return {{"Abs", "abs", &NewAbs},
          {"Atan", "atan", &NewAtan},
          {"Ceil", "ceil", &NewCeil},
          {"Clip", "clip", &NewClip},
          {"Cos", "cos", &NewCos},
          {"Elu", "elu", &NewElu, kActivation},
          {"Erf", "erf", &NewErf},
          {"Exp", "exp", &NewExp},
          {"Floor", "floor", &NewFloor},
          {"Gelu", "gelu", &NewGelu, kActivation},
          {"HardSigmoid", "hard_sigmoid", &NewHardSigmoid, kActivation},
          {"LeakyRelu", "leaky_relu", &NewLeakyRelu, kActivation},
          {"Log", "log", &NewLog},
          {"Pow", "power", &NewPow},
          {"Relu", "relu", &NewRelu, kActivation},
          {"Round", "round", &NewRound},
          {"Selu", "selu", &NewSelu, kActivation},
          {"Sigmoid", "sigmoid", &NewSigmoid, kActivation},
          {"Silu", "silu", &NewSilu, kActivation},
          {"Sin", "sin", &NewSin},
          {"Softplus", "softplus", &NewSoftplus, kActivation},
          {"Sqrt", "sqrt", &NewSqrt},
          {"Step", "step", &NewStep},
          {"Tanh", "tanh", &NewTanh, kActivation}};
}

}  // namespace tessera::worker

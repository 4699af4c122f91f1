#include <memory>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "common/math/activation/all.h"
#include "common/status_macros.h"
#include "cuda/dense/activation.h"
#include "worker/dense/ops/map_elements.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

// What a formula says of itself where it has these members.
template <typename Formula>
concept HasOptions = requires {
  Formula::kOptions;
};
template <typename Formula>
concept FollowsLayers = requires {
  Formula::kFollowsLayers;
};
// The derivative needs y alone, not x.
template <typename Formula>
concept DerivativeOfOutput = requires {
  Formula::kDerivativeOfOutput;
};
template <typename Formula>
concept HasNoGradient = requires {
  Formula::kHasNoGradient;
};

// y = f(x), element by element: the CPU's loop over every formula of common/math/activation.
//   dx = dy f'(x)
template <typename Formula>
class Activation final : public Op {
 public:
  Activation(const Shape& shape, typename Formula::Params params) : params_(params) {
    outputs_ = {shape};
  }

  bool BySample() const override { return true; }
  bool ForwardInPlace() const override { return DerivativeOfOutput<Formula>; }
  bool BackwardInPlace() const override { return true; }
  bool PassesGradient() const override { return !HasNoGradient<Formula>; }

  void Forward(const ForwardPass& pass) const override {
    const typename Formula::Params params = params_;
    MapElements(pass.inputs[0].data(), pass.outputs[0].data(), pass.outputs[0].size(),
                [&](size_t, float x) { return Formula::Value(params, x); });
  }

  void Backward(const BackwardPass& pass) const override {
    const typename Formula::Params params = params_;
    const float* __restrict y = pass.outputs[0].data();
    // A rectifier's y has the sign of its x.
    const float* __restrict x = DerivativeOfOutput<Formula> ? y : pass.inputs[0].data();
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
                                    DerivativeOfOutput<Formula> ? y : pass.inputs[0].data(), y,
                                    pass.output_gradients[0].data(), pass.input_gradients[0].data(),
                                    pass.input_gradients[0].size());
  }

 private:
  const typename Formula::Params params_;
};

// What options must be besides within their ranges; those of most formulas nothing.
template <typename Params>
void Check(const Params&, OptionReader&) {}
void Check(const math::Clip::Params& params, OptionReader& options) {
  if (params.max < params.min) {
    options.Fail("max",
                 absl::StrCat("expected at least min, ", params.min, ", found ", params.max));
  }
}
void Check(const math::Pow::Params&, OptionReader& options) {
  if (!options.Has("exponent")) options.Fail("exponent", "must be set: a number, such as 3");
}

template <typename Formula>
absl::StatusOr<std::unique_ptr<Op>> NewActivation(absl::Span<const Shape> inputs,
                                                  OptionReader& options) {
  typename Formula::Params params;
  if constexpr (HasOptions<Formula>) {
    for (const auto& [name, number, least, most] : Formula::kOptions) {
      const auto by_default = static_cast<double>(params.*number);
      params.*number = static_cast<float>(options.Number(name, by_default, least, most));
    }
  }
  Check(params, options);
  TESSERA_RETURN_IF_ERROR(options.Finish());
  TESSERA_RETURN_IF_ERROR(ExpectShapes(inputs.size() == 1, "one input", inputs));
  return std::make_unique<Activation<Formula>>(inputs[0], params);
}

template <typename Formula>
OpEntry Entry(const char* name, const char* file) {
  return {.name = name,
          .alias = std::is_same_v<Formula, math::Pow> ? "power" : file,
          .factory = &NewActivation<Formula>,
          .activation = FollowsLayers<Formula>,
          .elementwise = true};
}

}  // namespace

std::vector<OpEntry> OpsOfActivation() {
#define TESSERA_ENTRY(Formula, file) Entry<math::Formula>(#Formula, #file),
  return {TESSERA_ACTIVATIONS(TESSERA_ENTRY)};
#undef TESSERA_ENTRY
}

}  // namespace tessera::worker

#include <algorithm>

#include "common/status_macros.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

// y = x1 + x2 + ... of equal shapes (ONNX Add; Sum for more than two).
class Add final : public Op {
 public:
  explicit Add(const Shape& shape) { outputs_ = {shape}; }

  void Forward(const ForwardPass& pass) const override {
    const absl::Span<float> y = pass.outputs[0];
    std::copy(pass.inputs[0].begin(), pass.inputs[0].end(), y.begin());
    for (size_t k = 1; k < pass.inputs.size(); ++k) {
      const float* __restrict x = pass.inputs[k].data();
      float* __restrict out = y.data();
      for (size_t i = 0; i < y.size(); ++i) out[i] += x[i];
    }
  }

  void Backward(const BackwardPass& pass) const override {
    const absl::Span<const float> dy = pass.output_gradients[0];
    for (const absl::Span<float> dx : pass.input_gradients) {
      if (!dx.empty()) std::copy(dy.begin(), dy.end(), dx.begin());
    }
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> NewAdd(absl::Span<const Shape> inputs, OptionReader& options) {
  TESSERA_RETURN_IF_ERROR(options.Finish());
  const bool equal = std::all_of(inputs.begin(), inputs.end(),
                                 [&](const Shape& shape) { return shape == inputs[0]; });
  TESSERA_RETURN_IF_ERROR(
      ExpectShapes(inputs.size() >= 2 && equal, "two or more inputs of one shape", inputs));
  return std::make_unique<Add>(inputs[0]);
}

}  // namespace tessera::worker

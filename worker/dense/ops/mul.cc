#include "common/status_macros.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

void Multiply(absl::Span<const float> a, absl::Span<const float> b, absl::Span<float> y) {
  const float* __restrict in_a = a.data();
  const float* __restrict in_b = b.data();
  float* __restrict out = y.data();
  for (size_t i = 0; i < y.size(); ++i) out[i] = in_a[i] * in_b[i];
}

// y = a * b, element by element, of equal shapes (ONNX Mul).
//   da = dy * b;  db = dy * a
class Mul final : public Op {
 public:
  explicit Mul(const Shape& shape) { outputs_ = {shape}; }

  void Forward(const ForwardPass& pass) const override {
    Multiply(pass.inputs[0], pass.inputs[1], pass.outputs[0]);
  }

  void Backward(const BackwardPass& pass) const override {
    for (int k = 0; k < 2; ++k) {
      if (pass.input_gradients[k].empty()) continue;
      Multiply(pass.output_gradients[0], pass.inputs[1 - k], pass.input_gradients[k]);
    }
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> NewMul(absl::Span<const Shape> inputs, OptionReader& options) {
  TESSERA_RETURN_IF_ERROR(options.Finish());
  TESSERA_RETURN_IF_ERROR(ExpectShapes(inputs.size() == 2 && inputs[0] == inputs[1],
                                       "two inputs of one shape", inputs));
  return std::make_unique<Mul>(inputs[0]);
}

}  // namespace tessera::worker

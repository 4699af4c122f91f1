#include <algorithm>

#include "common/status_macros.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

// Passes the input on; the input's gradient is zero. (ONNX: Identity.)
class StopGradient final : public Op {
 public:
  explicit StopGradient(const Shape& shape) { outputs_ = {shape}; }

  bool BySample() const override { return true; }
  bool ReadsOutputs() const override { return false; }
  bool PassesGradient() const override { return false; }

  void Forward(const ForwardPass& pass) const override {
    std::copy(pass.inputs[0].begin(), pass.inputs[0].end(), pass.outputs[0].begin());
  }

  void Backward(const BackwardPass& pass) const override {
    std::fill(pass.input_gradients[0].begin(), pass.input_gradients[0].end(), 0.0f);
  }

  bool RunsOnCuda() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    stream.Copy(pass.inputs[0].data(), pass.outputs[0].data(), pass.inputs[0].size());
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    stream.Zero(pass.input_gradients[0].data(), pass.input_gradients[0].size());
  }
};

// No options.
absl::StatusOr<std::unique_ptr<Op>> NewStopGradient(absl::Span<const Shape> inputs,
                                                    OptionReader& options) {
  TESSERA_RETURN_IF_ERROR(options.Finish());
  TESSERA_RETURN_IF_ERROR(
      ExpectShapes(inputs.size() == 1 && inputs[0].rank() >= 1, "one input [batch, ...]", inputs));
  return std::make_unique<StopGradient>(inputs[0]);
}

}  // namespace

std::vector<OpEntry> OpsOfStopGradient() {
  return {{"StopGradient", "stop_gradient", &NewStopGradient}};
}

}  // namespace tessera::worker

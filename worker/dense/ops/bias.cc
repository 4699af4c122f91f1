#include <algorithm>

#include "common/status_macros.h"
#include "cuda/dense/bias.h"
#include "worker/dense/ops/bias_gradient.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

// y[..., j] = x[..., j] + bias[j], bias trained and starting at 0 (ONNX: Add with an initializer).
class Bias final : public Op {
 public:
  explicit Bias(const Shape& shape) : width_(shape.last()) {
    outputs_ = {shape};
    parameters_ = {{"bias", {shape.last()}, {}}};
  }

  bool BySample() const override { return true; }
  bool ReadsOutputs() const override { return false; }

  void Forward(const ForwardPass& pass) const override {
    const float* __restrict bias = pass.trained[0].data();
    const float* __restrict x = pass.inputs[0].data();
    float* __restrict y = pass.outputs[0].data();
    const size_t rows = Rows(pass.outputs[0]);
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < width_; ++j) y[i * width_ + j] = x[i * width_ + j] + bias[j];
    }
  }

  void Backward(const BackwardPass& pass) const override {
    const absl::Span<const float> dy = pass.output_gradients[0];
    const absl::Span<float> dx = pass.input_gradients[0];
    if (!dx.empty()) std::copy(dy.begin(), dy.end(), dx.begin());
  }

  void ParameterGradients(const BackwardPass& pass) const override {
    BiasGradient(pass.pool, pass.output_gradients[0], pass.trained_gradients[0]);
  }

  bool RunsOnCuda() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    cuda::AddBias(stream, pass.inputs[0].data(), pass.trained[0].data(), pass.outputs[0].data(),
                  Rows(pass.outputs[0]), width_);
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    const absl::Span<const float> dy = pass.output_gradients[0];
    cuda::BiasGradient(stream, dy.data(), pass.trained_gradients[0].data(), Rows(dy), width_);
    const absl::Span<float> dx = pass.input_gradients[0];
    if (!dx.empty()) stream.Copy(dy.data(), dx.data(), dx.size());
  }

 private:
  size_t Rows(absl::Span<const float> y) const { return y.size() / width_; }

  const size_t width_;
};

absl::StatusOr<std::unique_ptr<Op>> NewBias(absl::Span<const Shape> inputs, OptionReader& options) {
  TESSERA_RETURN_IF_ERROR(options.Finish());
  TESSERA_RETURN_IF_ERROR(ExpectShapes(inputs.size() == 1 && inputs[0].rank() >= 1,
                                       "one input [batch, ..., n]", inputs));
  return std::make_unique<Bias>(inputs[0]);
}

}  // namespace

std::vector<OpEntry> OpsOfBias() { return {{"Bias", "bias", &NewBias}}; }

}  // namespace tessera::worker

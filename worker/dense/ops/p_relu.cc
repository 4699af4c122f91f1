#include "common/math/p_relu.h"
#include "common/status_macros.h"
#include "cuda/dense/p_relu.h"
#include "worker/dense/column_sum.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

// Parametric rectified linear unit (He et al. 2015, arXiv:1502.01852; ONNX PRelu): x where x > 0,
// slope_j x elsewhere, a trained slope for every index of the last axis.
//   dx = dy or dy slope;  dslope = sum of dy min(x, 0)
class PRelu final : public Op {
 public:
  PRelu(const Shape& shape, float slope) : width_(static_cast<size_t>(shape.last())) {
    outputs_ = {shape};
    parameters_ = {{"slope", {shape.last()}, {Initializer::Kind::kConstant, slope}}};
  }

  bool BySample() const override { return true; }

  void Forward(const ForwardPass& pass) const override {
    const float* __restrict slope = pass.trained[0].data();
    for (size_t at = 0; at < pass.outputs[0].size(); at += width_) {
      const float* __restrict x = pass.inputs[0].data() + at;
      float* __restrict y = pass.outputs[0].data() + at;
      for (size_t j = 0; j < width_; ++j) y[j] = math::PRelu::Value(slope[j], x[j]);
    }
  }

  void Backward(const BackwardPass& pass) const override {
    const absl::Span<const float> dy = pass.output_gradients[0], x = pass.inputs[0];
    const absl::Span<float> dx = pass.input_gradients[0];
    const float* __restrict slope = pass.trained[0].data();
    for (size_t at = 0; at < dx.size(); at += width_) {
      for (size_t j = 0; j < width_; ++j) {
        dx[at + j] = math::PRelu::Gradient(slope[j], x[at + j], dy[at + j]);
      }
    }
  }

  void ParameterGradients(const BackwardPass& pass) const override {
    const absl::Span<const float> dy = pass.output_gradients[0], x = pass.inputs[0];
    ColumnSums<1>(
        pass.pool, dy.size() / width_, width_,
        [&](size_t at, size_t, float(&terms)[1]) {
          terms[0] = math::PRelu::SlopeGradient(x[at], dy[at]);
        },
        [&](size_t j, const double(&sums)[1]) {
          pass.trained_gradients[0][j] = static_cast<float>(sums[0]);
        });
  }

  bool RunsOnCuda() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    cuda::PRelu(stream, pass.inputs[0].data(), pass.trained[0].data(), pass.outputs[0].data(),
                Rows(pass.outputs[0]), static_cast<int64_t>(width_));
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    const float* const x = pass.inputs[0].data();
    const absl::Span<const float> dy = pass.output_gradients[0];
    const auto width = static_cast<int64_t>(width_);
    cuda::PReluSlopeGradient(stream, x, dy.data(), pass.trained_gradients[0].data(), Rows(dy),
                             width);
    const absl::Span<float> dx = pass.input_gradients[0];
    if (dx.empty()) return;
    cuda::PReluGradient(stream, x, pass.trained[0].data(), dy.data(), dx.data(), Rows(dx), width);
  }

 private:
  int64_t Rows(absl::Span<const float> y) const { return static_cast<int64_t>(y.size() / width_); }

  const size_t width_;
};

// Options: alpha, the slope to start from (0.25).
absl::StatusOr<std::unique_ptr<Op>> NewPRelu(absl::Span<const Shape> inputs,
                                             OptionReader& options) {
  const double alpha = options.Number("alpha", 0.25, -1e6, 1e6);
  TESSERA_RETURN_IF_ERROR(options.Finish());
  TESSERA_RETURN_IF_ERROR(ExpectShapes(inputs.size() == 1 && inputs[0].rank() >= 1,
                                       "one input [batch, ..., n]", inputs));
  return std::make_unique<PRelu>(inputs[0], static_cast<float>(alpha));
}

}  // namespace

std::vector<OpEntry> OpsOfPRelu() { return {{"PRelu", "prelu", &NewPRelu, kActivation}}; }

}  // namespace tessera::worker

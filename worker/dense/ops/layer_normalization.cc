#include "cuda/dense/layer_normalization.h"
#include "common/math/normalization/standardization.h"
#include "common/status_macros.h"
#include "worker/dense/column_sum.h"
#include "worker/dense/ops/lane_sum.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

using math::Standardization;

// Layer normalisation (Ba, Kiros, Hinton 2016, arXiv:1607.06450; ONNX LayerNormalization) of every
// row, the last axis, xhat being x standardised (math::Standardization):
//   y = xhat * weight + bias
// weight and bias have the dimensions from axis `affine` on, so that fields can have their own.
class LayerNormalization final : public Op {
 public:
  LayerNormalization(const Shape& shape, size_t affine, float epsilon)
      : width_(static_cast<size_t>(shape.last())),
        period_(shape.Product(affine, shape.rank())),
        epsilon_(epsilon) {
    outputs_ = {shape};
    std::vector<int64_t> dims;
    for (size_t i = affine; i < shape.rank(); ++i) dims.push_back(shape.dim(i));
    parameters_ = {{"weight", dims, {Initializer::Kind::kConstant, 1}}, {"bias", dims, {}}};
  }

  // xhat, then 1 / sqrt(var + eps) of every row
  size_t KeptFloats(size_t batch) const override {
    const size_t floats = batch * outputs_[0].floats();
    return floats + floats / width_;
  }

  void Forward(const ForwardPass& pass) const override {
    const size_t floats = pass.outputs[0].size();
    ForRows(pass.pool, floats / width_, width_, [&](size_t first, size_t last) {
      for (size_t row = first; row < last; ++row) {
        const size_t at = row * width_;
        ForwardRow(pass, at, at % period_, pass.training ? pass.kept.data() + at : nullptr,
                   pass.training ? pass.kept.data() + floats + row : nullptr);
      }
    });
  }

  void Backward(const BackwardPass& pass) const override {
    const absl::Span<const float> dy = pass.output_gradients[0];
    const float* __restrict kept = pass.kept.data();
    ColumnSums<2>(
        pass.pool, dy.size() / period_, period_,
        [&](size_t at, size_t, float(&terms)[2]) {
          terms[0] = dy[at] * kept[at];
          terms[1] = dy[at];
        },
        [&](size_t j, const double(&sums)[2]) {
          pass.trained_gradients[0][j] = static_cast<float>(sums[0]);
          pass.trained_gradients[1][j] = static_cast<float>(sums[1]);
        });
    if (pass.input_gradients[0].empty()) return;
    ForRows(pass.pool, dy.size() / width_, width_, [&](size_t first, size_t last) {
      for (size_t row = first; row < last; ++row) {
        const size_t at = row * width_;
        BackwardRow(pass, at, at % period_, kept + at, kept[dy.size() + row]);
      }
    });
  }

  bool RunsOnCuda() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    float* const xhat = pass.training ? pass.kept.data() : nullptr;
    const size_t floats = pass.outputs[0].size();
    cuda::LayerNormalization(stream, CudaShape(floats), epsilon_, pass.inputs[0].data(),
                             pass.trained[0].data(), pass.trained[1].data(), pass.outputs[0].data(),
                             xhat, xhat == nullptr ? nullptr : xhat + floats);
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    const float* const dy = pass.output_gradients[0].data();
    const float* const xhat = pass.kept.data();
    const size_t floats = pass.output_gradients[0].size();
    cuda::LayerNormalizationParameterGradients(stream, CudaShape(floats), xhat, dy,
                                               pass.trained_gradients[0].data(),
                                               pass.trained_gradients[1].data());
    if (pass.input_gradients[0].empty()) return;
    cuda::LayerNormalizationBackward(stream, CudaShape(floats), xhat, xhat + floats,
                                     pass.trained[0].data(), dy, pass.input_gradients[0].data());
  }

 private:
  // The row from `at` on, whose weights begin at `weights`. Keeps xhat and `kept_inverse`, in
  // training.
  void ForwardRow(const ForwardPass& pass, size_t at, size_t weights, float* __restrict xhat,
                  float* kept_inverse) const {
    const float n = static_cast<float>(width_);
    const float* __restrict x = pass.inputs[0].data() + at;
    float* __restrict y = pass.outputs[0].data() + at;
    const float* __restrict weight = pass.trained[0].data() + weights;
    const float* __restrict bias = pass.trained[1].data() + weights;
    const float mean = LaneSum(width_, [&](size_t j) { return x[j]; }) / n;
    const float variance =
        LaneSum(width_, [&](size_t j) { return (x[j] - mean) * (x[j] - mean); }) / n;
    const float inverse = Standardization::Inverse(variance, epsilon_);
    if (xhat != nullptr) {
      for (size_t j = 0; j < width_; ++j) xhat[j] = Standardization::Value(x[j], mean, inverse);
      *kept_inverse = inverse;
    }
    for (size_t j = 0; j < width_; ++j) {
      y[j] = Standardization::Value(x[j], mean, inverse) * weight[j] + bias[j];
    }
  }

  void BackwardRow(const BackwardPass& pass, size_t at, size_t weights,
                   const float* __restrict xhat, float inverse) const {
    const float n = static_cast<float>(width_);
    const float* __restrict dy = pass.output_gradients[0].data() + at;
    const float* __restrict weight = pass.trained[0].data() + weights;
    float* __restrict dx = pass.input_gradients[0].data() + at;
    const float mean = LaneSum(width_, [&](size_t j) { return dy[j] * weight[j]; }) / n;
    const float slope = LaneSum(width_, [&](size_t j) { return dy[j] * weight[j] * xhat[j]; }) / n;
    for (size_t j = 0; j < width_; ++j) {
      dx[j] = Standardization::Gradient(inverse, dy[j] * weight[j], mean, xhat[j], slope);
    }
  }

  cuda::LayerNormalizationShape CudaShape(size_t floats) const {
    return {static_cast<int64_t>(floats / width_), static_cast<int64_t>(width_),
            static_cast<int64_t>(period_)};
  }

  const size_t width_;
  const size_t period_;  // floats of weight
  const float epsilon_;
};

// Options: epsilon (1e-5); affine_axis, the first axis that weight and bias have, counted with the
// batch as 0 (-1, the last).
absl::StatusOr<std::unique_ptr<Op>> NewLayerNormalization(absl::Span<const Shape> inputs,
                                                          OptionReader& options) {
  const double epsilon = options.Number("epsilon", 1e-5, 1e-12, 1);
  const int64_t axis = options.Int("affine_axis", -1, -8, 8);
  TESSERA_RETURN_IF_ERROR(options.Finish());
  TESSERA_RETURN_IF_ERROR(ExpectShapes(inputs.size() == 1 && inputs[0].rank() >= 1,
                                       "one input [batch, ..., n]", inputs));
  TESSERA_ASSIGN_OR_RETURN(const size_t affine, inputs[0].SampleAxis(axis));
  return std::make_unique<LayerNormalization>(inputs[0], affine, static_cast<float>(epsilon));
}

}  // namespace

std::vector<OpEntry> OpsOfLayerNormalization() {
  return {{"LayerNormalization", "layer_norm", &NewLayerNormalization}};
}

}  // namespace tessera::worker

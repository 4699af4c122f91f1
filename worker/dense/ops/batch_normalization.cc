#include "cuda/dense/batch_normalization.h"
#include "common/math/normalization/standardization.h"
#include "common/status_macros.h"
#include "cuda/dense/batch_statistics.h"
#include "worker/dense/column_sum.h"
#include "worker/dense/ops/batch_statistics.h"
#include "worker/dense/ops/map_elements.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

using math::Standardization;

// Batch normalisation of each feature, an index of the last axis (Ioffe, Szegedy 2015,
// arXiv:1502.03167), over the rows of x [batch, ..., n]:
//   y = (x - mean) / sqrt(var + eps) * weight + bias
// or, if it is not affine, without weight and bias, as if these were 1 and 0;
// with the batch's statistics in training and the running ones in evaluation (batch_statistics.h).
//   dbias = sum dy;  dweight = sum dy xhat
//   dx = weight / sqrt(var + eps) * (dy - dbias / rows - xhat * dweight / rows)
class BatchNormalization final : public Op {
 public:
  BatchNormalization(const Shape& shape, float momentum, float epsilon, bool affine)
      : width_(shape.last()), momentum_(momentum), epsilon_(epsilon), affine_(affine) {
    outputs_ = {shape};
    const auto constant = [](float value) {
      return Initializer{Initializer::Kind::kConstant, value};
    };
    if (affine) {
      parameters_ = {{"weight", {shape.last()}, constant(1)},
                     {"bias", {shape.last()}, constant(0)}};
    }
    parameters_.push_back({"running_mean", {shape.last()}, constant(0), false});
    parameters_.push_back({"running_var", {shape.last()}, constant(1), false});
  }

  // mean, biased variance, 1 / sqrt(variance + eps), and without parameters what would be their
  // gradients
  size_t SharedFloats() const override { return (affine_ ? 3 : 5) * width_; }

  bool BySample() const override { return true; }
  bool BackwardInPlace() const override { return true; }
  bool ReadsOutputs() const override { return false; }
  bool Prepares() const override { return true; }

  void PrepareForward(const ForwardPass& pass) const override {
    MeasureBatch(pass.pool, pass.inputs[0], epsilon_, pass.shared.subspan(0, 3 * width_));
  }

  void Forward(const ForwardPass& pass) const override {
    const size_t rows = pass.outputs[0].size() / width_;
    const float* __restrict x = pass.inputs[0].data();
    float* __restrict y = pass.outputs[0].data();
    const float* mean = pass.statistics[0].data();
    if (pass.training) mean = pass.shared.data();
    // In tiles of columns, so that their factors fit the stack.
    for (size_t begin = 0; begin < width_; begin += kTile) {
      const size_t count = std::min(kTile, width_ - begin);
      float scale[kTile], shift[kTile];
      for (size_t j = 0; j < count; ++j) {
        const size_t column = begin + j;
        const float inverse = pass.training
                                  ? pass.shared[2 * width_ + column]
                                  : Standardization::Inverse(pass.statistics[1][column], epsilon_);
        scale[j] = affine_ ? pass.trained[0][column] * inverse : inverse;
        shift[j] = affine_ ? pass.trained[1][column] : 0;
      }
      const float* __restrict center = mean + begin;
      for (size_t i = 0; i < rows; ++i) {
        const size_t at = i * width_ + begin;
        for (size_t j = 0; j < count; ++j) {
          y[at + j] = Standardization::Value(x[at + j], center[j], scale[j]) + shift[j];
        }
      }
    }
  }

  void PrepareBackward(const BackwardPass& pass) const override {
    const size_t rows = pass.output_gradients[0].size() / width_;
    const float* __restrict x = pass.inputs[0].data();
    const float* __restrict dy = pass.output_gradients[0].data();
    const float* __restrict mean = pass.shared.data();
    const float* __restrict inverse = pass.shared.data() + 2 * width_;
    const Sums to = SumsOf(pass);
    ColumnSums<2>(
        pass.pool, rows, width_,
        [&](size_t at, size_t j, float(&terms)[2]) {
          terms[0] = dy[at] * (x[at] - mean[j]);
          terms[1] = dy[at];
        },
        [&](size_t j, const double(&sums)[2]) {
          to.dweight[j] = static_cast<float>(sums[0] * static_cast<double>(inverse[j]));
          to.dbias[j] = static_cast<float>(sums[1]);
        });
    MovedStatistics(pass.shared, rows, momentum_ * pass.statistics_share, pass.statistics,
                    pass.statistics_gradients);
  }

  void Backward(const BackwardPass& pass) const override {
    if (pass.input_gradients[0].empty()) return;
    const float* __restrict x = pass.inputs[0].data();
    const float* dy = pass.output_gradients[0].data();
    float* dx = pass.input_gradients[0].data();
    const size_t rows = pass.output_gradients[0].size() / width_;
    const size_t all_rows = pass.whole_batch * (outputs_[0].floats() / width_);
    const float n = all_rows == 0 ? 1 : static_cast<float>(all_rows);
    const Sums sums = SumsOf(pass);
    for (size_t begin = 0; begin < width_; begin += kTile) {
      const size_t count = std::min(kTile, width_ - begin);
      const float* __restrict mean = pass.shared.data() + begin;
      float scale[kTile], mean_dy[kTile], slope[kTile];
      for (size_t j = 0; j < count; ++j) {
        const size_t column = begin + j;
        const float inverse = pass.shared[2 * width_ + column];
        scale[j] = affine_ ? pass.trained[0][column] * inverse : inverse;
        mean_dy[j] = sums.dbias[column] / n;
        slope[j] = Standardization::BatchSlope(sums.dweight[column], inverse, n);
      }
      for (size_t i = 0; i < rows; ++i) {
        const float* __restrict row = x + i * width_ + begin;
        MapElements(
            dy + i * width_ + begin, dx + i * width_ + begin, count, [&](size_t j, float g) {
              return Standardization::Gradient(scale[j], g, mean_dy[j], row[j] - mean[j], slope[j]);
            });
      }
    }
  }

  bool RunsOnCuda() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    const float* const x = pass.inputs[0].data();
    const size_t rows = pass.outputs[0].size() / width_;
    const CudaMoments moments =
        FindCudaMoments(stream, pass, rows, width_, epsilon_, pass.shared.data());
    cuda::BatchNormalization(stream, x, rows, width_, moments.mean, moments.inverse,
                             affine_ ? pass.trained[0].data() : nullptr,
                             affine_ ? pass.trained[1].data() : nullptr, pass.outputs[0].data());
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    const float* const x = pass.inputs[0].data();
    const float* const dy = pass.output_gradients[0].data();
    const float* const mean = pass.shared.data();
    const float* const inverse = mean + 2 * width_;
    const Sums sums = SumsOf(pass);
    const size_t rows = pass.output_gradients[0].size() / width_;
    cuda::BatchNormalizationParameterGradients(stream, x, rows, width_, mean, inverse, dy,
                                               sums.dweight, sums.dbias);
    cuda::MovedStatistics(stream, mean, rows, width_, momentum_ * pass.statistics_share,
                          pass.statistics[0].data(), pass.statistics[1].data(),
                          pass.statistics_gradients[0].data(), pass.statistics_gradients[1].data());
    if (pass.input_gradients[0].empty()) return;
    cuda::BatchNormalizationBackward(stream, x, rows, width_, mean, inverse,
                                     affine_ ? pass.trained[0].data() : nullptr, sums.dweight,
                                     sums.dbias, dy, pass.input_gradients[0].data());
  }

 private:
  static constexpr size_t kTile = 256;

  // The sums over the batch that dx needs: the gradients of weight and bias.
  struct Sums {
    float* dweight;
    float* dbias;
  };
  Sums SumsOf(const BackwardPass& pass) const {
    if (affine_) return {pass.trained_gradients[0].data(), pass.trained_gradients[1].data()};
    return {pass.shared.data() + 3 * width_, pass.shared.data() + 4 * width_};
  }

  const size_t width_;
  const float momentum_;
  const float epsilon_;
  const bool affine_;
};

// Options: momentum, the weight of the new batch (0.1; ONNX's momentum is 1 minus this), epsilon
// (1e-5), affine (true): it has a weight and a bias.
absl::StatusOr<std::unique_ptr<Op>> NewBatchNormalization(absl::Span<const Shape> inputs,
                                                          OptionReader& options) {
  const double momentum = options.Number("momentum", 0.1, 0, 1);
  const double epsilon = options.Number("epsilon", 1e-5, 1e-12, 1);
  const bool affine = options.Bool("affine", true);
  TESSERA_RETURN_IF_ERROR(options.Finish());
  TESSERA_RETURN_IF_ERROR(ExpectShapes(inputs.size() == 1 && inputs[0].rank() >= 1,
                                       "one input [batch, ..., n]", inputs));
  return std::make_unique<BatchNormalization>(inputs[0], static_cast<float>(momentum),
                                              static_cast<float>(epsilon), affine);
}

}  // namespace

std::vector<OpEntry> OpsOfBatchNormalization() {
  return {{"BatchNormalization", "batch_norm", &NewBatchNormalization}};
}

}  // namespace tessera::worker

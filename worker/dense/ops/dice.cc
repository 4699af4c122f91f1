#include "common/math/normalization/dice.h"
#include "common/math/normalization/standardization.h"
#include "common/status_macros.h"
#include "cuda/dense/batch_statistics.h"
#include "cuda/dense/dice.h"
#include "worker/dense/column_sum.h"
#include "worker/dense/ops/batch_statistics.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

using math::Standardization;

// math::Dice of x [batch, ..., n], standardised with the mean and variance of each index of the
// last axis: the batch's in training and the running ones in evaluation (batch_statistics.h). alpha
// is trained, one for each such index.
class Dice final : public Op {
 public:
  Dice(const Shape& shape, float momentum, float epsilon)
      : width_(static_cast<size_t>(shape.last())), momentum_(momentum), epsilon_(epsilon) {
    outputs_ = {shape};
    parameters_ = {{"alpha", {shape.last()}, {}},
                   {"running_mean", {shape.last()}, {}, false},
                   {"running_var", {shape.last()}, {Initializer::Kind::kConstant, 1, 0, 0}, false}};
  }

  // The batch's moments [3, width], then p.
  size_t KeptFloats(size_t batch) const override {
    return 3 * width_ + batch * outputs_[0].floats();
  }

  // On a card: room for the sums of each column that its gradients share.
  size_t ScratchFloats() const override { return 2 * width_; }

  void Forward(const ForwardPass& pass) const override {
    const absl::Span<const float> x = pass.inputs[0];
    if (pass.training) MeasureBatch(pass.pool, x, epsilon_, pass.kept.subspan(0, 3 * width_));
    const float* mean = pass.training ? pass.kept.data() : pass.statistics[0].data();
    for (size_t at = 0; at < x.size(); at += width_) {
      for (size_t j = 0; j < width_; ++j) {
        const float inverse = pass.training
                                  ? pass.kept[2 * width_ + j]
                                  : Standardization::Inverse(pass.statistics[1][j], epsilon_);
        const float p = math::Dice::Share(Standardization::Value(x[at + j], mean[j], inverse));
        pass.outputs[0][at + j] = math::Dice::Value(p, pass.trained[0][j], x[at + j]);
        if (pass.training) pass.kept[3 * width_ + at + j] = p;
      }
    }
  }

  void Backward(const BackwardPass& pass) const override {
    const absl::Span<const float> x = pass.inputs[0], dy = pass.output_gradients[0];
    const float* __restrict alpha = pass.trained[0].data();
    const float* __restrict mean = pass.kept.data();
    const float* __restrict inverse = pass.kept.data() + 2 * width_;
    const float* __restrict p = pass.kept.data() + 3 * width_;
    const size_t rows = dy.size() / width_;
    const float n = rows == 0 ? 1 : static_cast<float>(rows);
    const auto slope = [&](size_t at, size_t j) {
      return math::Dice::StandardGradient(p[at], alpha[j], x[at], dy[at]);
    };
    MovedStatistics(pass.kept, rows, momentum_, pass.statistics, pass.statistics_gradients);
    absl::Span<float> dx = pass.input_gradients[0];
    ColumnSums<3>(
        pass.pool, rows, width_,
        [&](size_t at, size_t j, float(&terms)[3]) {
          const float g = slope(at, j);
          terms[0] = math::Dice::AlphaGradient(p[at], x[at], dy[at]);
          terms[1] = g;
          terms[2] = g * (x[at] - mean[j]);
        },
        [&](size_t j, const double(&sums)[3]) {
          pass.trained_gradients[0][j] = static_cast<float>(sums[0]);
          if (dx.empty()) return;
          const float g_mean = static_cast<float>(sums[1]) / n;
          const float g_slope = static_cast<float>(sums[2]) / n * inverse[j] * inverse[j];
          for (size_t at = j; at < dx.size(); at += width_) {
            dx[at] = dy[at] * math::Dice::Slope(p[at], alpha[j]) +
                     Standardization::Gradient(inverse[j], slope(at, j), g_mean, x[at] - mean[j],
                                               g_slope);
          }
        });
  }

  bool RunsOnCuda() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    const float* const x = pass.inputs[0].data();
    const size_t rows = pass.outputs[0].size() / width_;
    const CudaMoments moments =
        FindCudaMoments(stream, pass, rows, width_, epsilon_, pass.kept.data());
    cuda::Dice(stream, x, rows, width_, moments.mean, moments.inverse, pass.trained[0].data(),
               pass.outputs[0].data(), pass.training ? pass.kept.data() + 3 * width_ : nullptr);
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    const float* const x = pass.inputs[0].data();
    const float* const dy = pass.output_gradients[0].data();
    const float* const mean = pass.kept.data();
    const float* const inverse = mean + 2 * width_;
    const float* const p = mean + 3 * width_;
    const size_t rows = pass.output_gradients[0].size() / width_;
    cuda::MovedStatistics(stream, mean, rows, width_, momentum_, pass.statistics[0].data(),
                          pass.statistics[1].data(), pass.statistics_gradients[0].data(),
                          pass.statistics_gradients[1].data());
    cuda::DiceAlphaGradient(stream, x, rows, width_, p, dy, pass.trained_gradients[0].data());
    if (pass.input_gradients[0].empty()) return;
    cuda::DiceBackward(stream, x, rows, width_, mean, inverse, pass.trained[0].data(), p, dy,
                       pass.input_gradients[0].data(), pass.scratch.data());
  }

 private:
  const size_t width_;
  const float momentum_;
  const float epsilon_;
};

}  // namespace

// Options: momentum, the weight of the new batch (0.1), epsilon (1e-9).
absl::StatusOr<std::unique_ptr<Op>> NewDice(absl::Span<const Shape> inputs, OptionReader& options) {
  const double momentum = options.Number("momentum", 0.1, 0, 1);
  const double epsilon = options.Number("epsilon", 1e-9, 1e-12, 1);
  TESSERA_RETURN_IF_ERROR(options.Finish());
  TESSERA_RETURN_IF_ERROR(ExpectShapes(inputs.size() == 1 && inputs[0].rank() >= 1,
                                       "one input [batch, ..., n]", inputs));
  return std::make_unique<Dice>(inputs[0], static_cast<float>(momentum),
                                static_cast<float>(epsilon));
}

}  // namespace tessera::worker

#include <algorithm>

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
                   {"running_var", {shape.last()}, {Initializer::Kind::kConstant, 1}, false}};
  }

  // The batch's moments [3, width], then p.
  size_t KeptFloats(size_t batch) const override {
    return 3 * width_ + batch * outputs_[0].floats();
  }

  // Sums of each column that its gradients share.
  size_t ScratchFloats() const override { return 2 * width_; }

  void Forward(const ForwardPass& pass) const override {
    const absl::Span<const float> x = pass.inputs[0];
    if (pass.training) MeasureBatch(pass.pool, x, epsilon_, pass.kept.subspan(0, 3 * width_));
    ForRows(pass.pool, x.size() / width_, width_, [&](size_t first, size_t last) {
      for (size_t column = 0; column < width_; column += kTile) {
        ForwardTile(pass, first, last, column, std::min(kTile, width_ - column));
      }
    });
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
    MovedStatistics(pass.kept, rows, momentum_ * pass.statistics_share, pass.statistics,
                    pass.statistics_gradients);
    float* __restrict g_mean = pass.scratch.data();
    float* __restrict g_slope = g_mean + width_;
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
          g_mean[j] = static_cast<float>(sums[1]) / n;
          g_slope[j] = static_cast<float>(sums[2]) / n * inverse[j] * inverse[j];
        });
    if (pass.input_gradients[0].empty()) return;
    float* __restrict dx = pass.input_gradients[0].data();
    ForRows(pass.pool, rows, width_, [&](size_t first, size_t last) {
      for (size_t row = first; row < last; ++row) {
        for (size_t j = 0; j < width_; ++j) {
          const size_t at = row * width_ + j;
          dx[at] = dy[at] * math::Dice::Slope(p[at], alpha[j]) +
                   Standardization::Gradient(inverse[j], slope(at, j), g_mean[j], x[at] - mean[j],
                                             g_slope[j]);
        }
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
    cuda::MovedStatistics(stream, mean, rows, width_, momentum_ * pass.statistics_share,
                          pass.statistics[0].data(), pass.statistics[1].data(),
                          pass.statistics_gradients[0].data(), pass.statistics_gradients[1].data());
    cuda::DiceAlphaGradient(stream, x, rows, width_, p, dy, pass.trained_gradients[0].data());
    if (pass.input_gradients[0].empty()) return;
    cuda::DiceBackward(stream, x, rows, width_, mean, inverse, pass.trained[0].data(), p, dy,
                       pass.input_gradients[0].data(), pass.scratch.data());
  }

 private:
  static constexpr size_t kTile = 256;  // columns whose factors fit the stack

  // Of the rows [first, last), `columns` columns from `begin` on.
  void ForwardTile(const ForwardPass& pass, size_t first, size_t last, size_t begin,
                   size_t columns) const {
    const float* __restrict alpha = pass.trained[0].data() + begin;
    const float* __restrict mean =
        (pass.training ? pass.kept.data() : pass.statistics[0].data()) + begin;
    float inverse[kTile];
    for (size_t j = 0; j < columns; ++j) {
      inverse[j] = pass.training
                       ? pass.kept[2 * width_ + begin + j]
                       : Standardization::Inverse(pass.statistics[1][begin + j], epsilon_);
    }
    for (size_t row = first; row < last; ++row) {
      const size_t at = row * width_ + begin;
      const float* __restrict x = pass.inputs[0].data() + at;
      float* __restrict y = pass.outputs[0].data() + at;
      float* __restrict kept = pass.training ? pass.kept.data() + 3 * width_ + at : nullptr;
      for (size_t j = 0; j < columns; ++j) {
        const float p = math::Dice::Share(Standardization::Value(x[j], mean[j], inverse[j]));
        y[j] = math::Dice::Value(p, alpha[j], x[j]);
        if (kept != nullptr) kept[j] = p;
      }
    }
  }

  const size_t width_;
  const float momentum_;
  const float epsilon_;
};

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

}  // namespace

std::vector<OpEntry> OpsOfDice() { return {{"Dice", "dice", &NewDice, kActivation}}; }

}  // namespace tessera::worker

#include <algorithm>

#include "common/math/normalization/softmax.h"
#include "common/status_macros.h"
#include "cuda/dense/softmax.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"
#include "worker/dense/ops/softmax_row.h"

namespace tessera::worker {
namespace {

// math::Softmax along one axis (ONNX Softmax): x as [outer, n, inner].
class Softmax final : public Op {
 public:
  Softmax(const Shape& shape, size_t axis)
      : outer_(shape.Product(0, axis)),
        size_(static_cast<size_t>(shape.dim(axis))),
        inner_(shape.Product(axis + 1, shape.rank())) {
    outputs_ = {shape};
  }

  bool BySample() const override { return true; }

  void Forward(const ForwardPass& pass) const override {
    if (inner_ == 1) {
      return ForEachRow(pass.batch, [&](size_t at) {
        SoftmaxRow(pass.inputs[0].data() + at, size_, pass.outputs[0].data() + at);
      });
    }
    ForEachTile(pass.batch, [&](size_t begin, size_t width) {
      const float* __restrict x = pass.inputs[0].data() + begin;
      float* __restrict y = pass.outputs[0].data() + begin;
      float largest[kTile], sum[kTile] = {};
      std::copy(x, x + width, largest);
      for (size_t s = 1; s < size_; ++s) {
        for (size_t j = 0; j < width; ++j) largest[j] = std::max(largest[j], x[s * inner_ + j]);
      }
      for (size_t s = 0; s < size_; ++s) {
        for (size_t j = 0; j < width; ++j) {
          const float e = math::Softmax::Numerator(x[s * inner_ + j], largest[j]);
          y[s * inner_ + j] = e;
          sum[j] += e;
        }
      }
      for (size_t j = 0; j < width; ++j) sum[j] = 1 / sum[j];
      for (size_t s = 0; s < size_; ++s) {
        for (size_t j = 0; j < width; ++j) y[s * inner_ + j] *= sum[j];
      }
    });
  }

  void Backward(const BackwardPass& pass) const override {
    if (pass.input_gradients[0].empty()) return;
    if (inner_ == 1) {
      return ForEachRow(pass.batch, [&](size_t at) {
        SoftmaxRowGradient(pass.outputs[0].data() + at, pass.output_gradients[0].data() + at, size_,
                           pass.input_gradients[0].data() + at);
      });
    }
    ForEachTile(pass.batch, [&](size_t begin, size_t width) {
      const float* __restrict y = pass.outputs[0].data() + begin;
      const float* __restrict dy = pass.output_gradients[0].data() + begin;
      float* __restrict dx = pass.input_gradients[0].data() + begin;
      float dot[kTile] = {};
      for (size_t s = 0; s < size_; ++s) {
        for (size_t j = 0; j < width; ++j) dot[j] += dy[s * inner_ + j] * y[s * inner_ + j];
      }
      for (size_t s = 0; s < size_; ++s) {
        for (size_t j = 0; j < width; ++j) {
          dx[s * inner_ + j] =
              math::Softmax::Gradient(y[s * inner_ + j], dy[s * inner_ + j], dot[j]);
        }
      }
    });
  }

  bool RunsOnCuda() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    cuda::Softmax(stream, pass.inputs[0].data(), pass.outputs[0].data(), pass.batch * outer_, size_,
                  inner_);
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    if (pass.input_gradients[0].empty()) return;
    cuda::SoftmaxBackward(stream, pass.outputs[0].data(), pass.output_gradients[0].data(),
                          pass.input_gradients[0].data(), pass.batch * outer_, size_, inner_);
  }

 private:
  static constexpr size_t kTile = 64;

  // Calls row(begin) for every softmax, if its elements lie side by side.
  template <typename Row>
  void ForEachRow(size_t batch, const Row& row) const {
    for (size_t i = 0; i < batch * outer_; ++i) row(i * size_);
  }

  // Calls tile(begin, width) for softmaxes side by side, whose first elements are begin, begin + 1,
  // ...
  template <typename Tile>
  void ForEachTile(size_t batch, const Tile& tile) const {
    for (size_t i = 0; i < batch * outer_; ++i) {
      for (size_t j = 0; j < inner_; j += kTile) {
        tile(i * size_ * inner_ + j, std::min(kTile, inner_ - j));
      }
    }
  }

  const size_t outer_;  // of a sample
  const size_t size_;
  const size_t inner_;
};

// Options: axis, counted with the batch as 0 (-1, the last).
absl::StatusOr<std::unique_ptr<Op>> NewSoftmax(absl::Span<const Shape> inputs,
                                               OptionReader& options) {
  const int64_t axis_option = options.Int("axis", -1, -8, 8);
  TESSERA_RETURN_IF_ERROR(options.Finish());
  TESSERA_RETURN_IF_ERROR(
      ExpectShapes(inputs.size() == 1 && inputs[0].rank() >= 1, "one input [batch, ...]", inputs));
  TESSERA_ASSIGN_OR_RETURN(const size_t axis, inputs[0].SampleAxis(axis_option));
  return std::make_unique<Softmax>(inputs[0], axis);
}

}  // namespace

std::vector<OpEntry> OpsOfSoftmax() { return {{"Softmax", "softmax", &NewSoftmax}}; }

}  // namespace tessera::worker

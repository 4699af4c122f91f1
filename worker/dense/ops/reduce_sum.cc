#include <algorithm>

#include "common/status_macros.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

// The sum over neighbouring axes (ONNX ReduceSum): x as [outer, summed, inner], y [outer, inner].
class ReduceSum final : public Op {
 public:
  ReduceSum(const Shape& input, size_t first, size_t last, bool keep_dims)
      : outer_(input.Product(0, first)),
        summed_(input.Product(first, last + 1)),
        inner_(input.Product(last + 1, input.rank())) {
    Shape output;
    for (size_t i = 0; i < input.rank(); ++i) {
      if (i < first || i > last) output.Append(input.dim(i));
      if (i >= first && i <= last && keep_dims) output.Append(1);
    }
    outputs_ = {output};
  }

  void Forward(const ForwardPass& pass) const override {
    for (size_t i = 0; i < pass.batch * outer_; ++i) {
      const float* __restrict x = pass.inputs[0].data() + i * summed_ * inner_;
      float* __restrict y = pass.outputs[0].data() + i * inner_;
      std::copy(x, x + inner_, y);
      for (size_t s = 1; s < summed_; ++s) {
        for (size_t j = 0; j < inner_; ++j) y[j] += x[s * inner_ + j];
      }
    }
  }

  void Backward(const BackwardPass& pass) const override {
    if (pass.input_gradients[0].empty()) return;
    for (size_t i = 0; i < pass.batch * outer_; ++i) {
      const float* dy = pass.output_gradients[0].data() + i * inner_;
      float* dx = pass.input_gradients[0].data() + i * summed_ * inner_;
      for (size_t s = 0; s < summed_; ++s) std::copy(dy, dy + inner_, dx + s * inner_);
    }
  }

 private:
  const size_t outer_;  // of a sample
  const size_t summed_;
  const size_t inner_;
};

}  // namespace

// Options: axes, neighbours, counted with the batch as 0 (all but the batch); keepdims, whether
// they stay as 1 (true).
absl::StatusOr<std::unique_ptr<Op>> NewReduceSum(absl::Span<const Shape> inputs,
                                                 OptionReader& options) {
  TESSERA_RETURN_IF_ERROR(
      ExpectShapes(inputs.size() == 1 && inputs[0].rank() >= 1, "one input [batch, ...]", inputs));
  const Shape& input = inputs[0];
  std::vector<int64_t> all;
  for (size_t i = 0; i < input.rank(); ++i) all.push_back(static_cast<int64_t>(i) + 1);
  std::vector<size_t> axes;
  for (const int64_t option : options.Ints("axes", all, -8, 8)) {
    TESSERA_ASSIGN_OR_RETURN(const size_t axis, input.SampleAxis(option));
    axes.push_back(axis);
  }
  std::sort(axes.begin(), axes.end());
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] != axes[0] + i) options.Fail("axes", "expected different axes that are neighbours");
  }
  if (axes.empty()) options.Fail("axes", "expected at least one axis");
  const bool keep_dims = options.Bool("keepdims", true);
  TESSERA_RETURN_IF_ERROR(options.Finish());
  if (!keep_dims && axes.size() == input.rank()) {
    return absl::InvalidArgumentError(
        "options.keepdims: must be true where all axes are summed; the output is [batch, 1, ...]");
  }
  return std::make_unique<ReduceSum>(input, axes.front(), axes.back(), keep_dims);
}

}  // namespace tessera::worker

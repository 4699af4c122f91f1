#include <algorithm>

#include "common/status_macros.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

// The given indices of one axis, in the given order; repeats are allowed (ONNX Gather with constant
// indices).
class Gather final : public Op {
 public:
  Gather(const Shape& input, size_t axis, const std::vector<int64_t>& indices)
      : rows_(input.Product(0, axis)),
        size_(static_cast<size_t>(input.dim(axis))),
        inner_(input.Product(axis + 1, input.rank())),
        indices_(indices.begin(), indices.end()) {
    Shape output = input;
    output.set_dim(axis, static_cast<int64_t>(indices.size()));
    outputs_ = {output};
  }

  bool BySample() const override { return true; }

  void Forward(const ForwardPass& pass) const override {
    const float* from = pass.inputs[0].data();
    float* to = pass.outputs[0].data();
    for (size_t i = 0; i < pass.batch * rows_; ++i, from += size_ * inner_) {
      for (const size_t index : indices_) {
        to = std::copy(from + index * inner_, from + (index + 1) * inner_, to);
      }
    }
  }

  void Backward(const BackwardPass& pass) const override {
    const absl::Span<float> all = pass.input_gradients[0];
    if (all.empty()) return;
    std::fill(all.begin(), all.end(), 0.0f);
    const float* __restrict dy = pass.output_gradients[0].data();
    float* __restrict dx = all.data();
    for (size_t i = 0; i < pass.batch * rows_; ++i, dx += size_ * inner_) {
      for (const size_t index : indices_) {
        for (size_t j = 0; j < inner_; ++j) dx[index * inner_ + j] += dy[j];
        dy += inner_;
      }
    }
  }

 private:
  const size_t rows_;  // of a sample
  const size_t size_;
  const size_t inner_;
  const std::vector<size_t> indices_;
};

}  // namespace

// Options: indices (required); axis, counted with the batch as 0 (1).
absl::StatusOr<std::unique_ptr<Op>> NewGather(absl::Span<const Shape> inputs,
                                              OptionReader& options) {
  TESSERA_RETURN_IF_ERROR(
      ExpectShapes(inputs.size() == 1 && inputs[0].rank() >= 1, "one input [batch, ...]", inputs));
  TESSERA_ASSIGN_OR_RETURN(const size_t axis, inputs[0].SampleAxis(options.Int("axis", 1, -8, 8)));
  const std::vector<int64_t> indices = options.Ints("indices", {}, 0, inputs[0].dim(axis) - 1);
  if (indices.empty()) options.Fail("indices", "must be set: the indices to take");
  TESSERA_RETURN_IF_ERROR(options.Finish());
  return std::make_unique<Gather>(inputs[0], axis, indices);
}

}  // namespace tessera::worker

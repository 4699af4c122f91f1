#include <algorithm>

#include "common/status_macros.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

// The inputs side by side along one axis (ONNX Concat): as rows of `widths_[k]` floats each, one
// row for every index of the axes before it.
class Concat final : public Op {
 public:
  Concat(absl::Span<const Shape> inputs, size_t axis) : rows_(inputs[0].Product(0, axis)) {
    Shape output = inputs[0];
    output.set_dim(axis, 0);
    for (const Shape& input : inputs) {
      output.set_dim(axis, output.dim(axis) + input.dim(axis));
      widths_.push_back(input.Product(axis, input.rank()));
    }
    outputs_ = {output};
    width_ = output.Product(axis, output.rank());
  }

  bool BySample() const override { return true; }

  void Forward(const ForwardPass& pass) const override {
    size_t offset = 0;
    for (size_t k = 0; k < widths_.size(); ++k) {
      const float* from = pass.inputs[k].data();
      float* to = pass.outputs[0].data() + offset;
      for (size_t i = 0; i < pass.batch * rows_; ++i) {
        std::copy(from + i * widths_[k], from + (i + 1) * widths_[k], to + i * width_);
      }
      offset += widths_[k];
    }
  }

  void Backward(const BackwardPass& pass) const override {
    size_t offset = 0;
    for (size_t k = 0; k < widths_.size(); ++k) {
      const float* from = pass.output_gradients[0].data() + offset;
      float* to = pass.input_gradients[k].data();
      offset += widths_[k];
      if (pass.input_gradients[k].empty()) continue;
      for (size_t i = 0; i < pass.batch * rows_; ++i) {
        std::copy(from + i * width_, from + i * width_ + widths_[k], to + i * widths_[k]);
      }
    }
  }

  bool RunsOnCuda() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    float* to = pass.outputs[0].data();
    for (size_t k = 0; k < widths_.size(); to += widths_[k], ++k) {
      stream.CopyRows(pass.inputs[k].data(), widths_[k], to, width_, pass.batch * rows_,
                      widths_[k]);
    }
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    const float* from = pass.output_gradients[0].data();
    for (size_t k = 0; k < widths_.size(); from += widths_[k], ++k) {
      const absl::Span<float> dx = pass.input_gradients[k];
      if (dx.empty()) continue;
      stream.CopyRows(from, width_, dx.data(), widths_[k], pass.batch * rows_, widths_[k]);
    }
  }

 private:
  const size_t rows_;  // of a sample
  std::vector<size_t> widths_;
  size_t width_ = 0;
};

// Options: axis, counted with the batch as 0 (-1, the last).
absl::StatusOr<std::unique_ptr<Op>> NewConcat(absl::Span<const Shape> inputs,
                                              OptionReader& options) {
  const int64_t axis_option = options.Int("axis", -1, -8, 8);
  TESSERA_RETURN_IF_ERROR(options.Finish());
  TESSERA_RETURN_IF_ERROR(ExpectShapes(!inputs.empty(), "one or more inputs", inputs));
  TESSERA_ASSIGN_OR_RETURN(const size_t axis, inputs[0].SampleAxis(axis_option));
  for (const Shape& input : inputs) {
    Shape same = input;
    if (input.rank() == inputs[0].rank()) same.set_dim(axis, inputs[0].dim(axis));
    TESSERA_RETURN_IF_ERROR(
        ExpectShapes(same == inputs[0],
                     absl::StrCat("inputs that differ in axis ", axis + 1, " alone"), inputs));
  }
  return std::make_unique<Concat>(inputs, axis);
}

}  // namespace

std::vector<OpEntry> OpsOfConcat() { return {{"Concat", "concat", &NewConcat}}; }

}  // namespace tessera::worker

#include <algorithm>

#include "common/status_macros.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

// Cuts the input along one axis (ONNX Split): output k takes `widths_[k]` floats of each row.
class Split final : public Op {
 public:
  Split(const Shape& input, size_t axis, const std::vector<int64_t>& sizes)
      : rows_(input.Product(0, axis)), width_(input.Product(axis, input.rank())) {
    for (const int64_t size : sizes) {
      Shape output = input;
      output.set_dim(axis, size);
      outputs_.push_back(output);
      widths_.push_back(output.Product(axis, output.rank()));
    }
  }

  bool BySample() const override { return true; }

  void Forward(const ForwardPass& pass) const override {
    const float* from = pass.inputs[0].data();
    for (size_t k = 0; k < widths_.size(); from += widths_[k], ++k) {
      float* to = pass.outputs[k].data();
      for (size_t i = 0; i < pass.batch * rows_; ++i) {
        std::copy(from + i * width_, from + i * width_ + widths_[k], to + i * widths_[k]);
      }
    }
  }

  void Backward(const BackwardPass& pass) const override {
    if (pass.input_gradients[0].empty()) return;
    float* to = pass.input_gradients[0].data();
    for (size_t k = 0; k < widths_.size(); to += widths_[k], ++k) {
      const float* from = pass.output_gradients[k].data();
      for (size_t i = 0; i < pass.batch * rows_; ++i) {
        std::copy(from + i * widths_[k], from + (i + 1) * widths_[k], to + i * width_);
      }
    }
  }

  bool RunsOnCuda() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    const float* from = pass.inputs[0].data();
    for (size_t k = 0; k < widths_.size(); from += widths_[k], ++k) {
      stream.CopyRows(from, width_, pass.outputs[k].data(), widths_[k], pass.batch * rows_,
                      widths_[k]);
    }
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    if (pass.input_gradients[0].empty()) return;
    float* to = pass.input_gradients[0].data();
    for (size_t k = 0; k < widths_.size(); to += widths_[k], ++k) {
      stream.CopyRows(pass.output_gradients[k].data(), widths_[k], to, width_, pass.batch * rows_,
                      widths_[k]);
    }
  }

 private:
  const size_t rows_;   // of a sample
  const size_t width_;  // floats of an input row
  std::vector<size_t> widths_;
};

// Options: axis, counted with the batch as 0 (-1, the last); split, the outputs' sizes in it, or
// num_outputs of one size.
absl::StatusOr<std::unique_ptr<Op>> NewSplit(absl::Span<const Shape> inputs,
                                             OptionReader& options) {
  TESSERA_RETURN_IF_ERROR(
      ExpectShapes(inputs.size() == 1 && inputs[0].rank() >= 1, "one input [batch, ...]", inputs));
  TESSERA_ASSIGN_OR_RETURN(const size_t axis, inputs[0].SampleAxis(options.Int("axis", -1, -8, 8)));
  const int64_t size = inputs[0].dim(axis);
  std::vector<int64_t> sizes = options.Ints("split", {}, 1, size);
  const int64_t equal = options.Int("num_outputs", 0, 1, size);
  if (sizes.empty() == (equal == 0)) {
    options.Fail("split", "set either split, a list of sizes, or num_outputs");
  } else if (equal > 0 && size % equal != 0) {
    options.Fail("num_outputs", absl::StrCat("must divide the axis's size, which is ", size));
  } else if (equal > 0) {
    sizes.assign(static_cast<size_t>(equal), size / equal);
  }
  int64_t total = 0;
  for (const int64_t s : sizes) total += s;
  if (total != size) {
    options.Fail("split",
                 absl::StrCat("the sizes must add up to the axis's, ", size, "; found ", total));
  }
  TESSERA_RETURN_IF_ERROR(options.Finish());
  return std::make_unique<Split>(inputs[0], axis, sizes);
}

}  // namespace

std::vector<OpEntry> OpsOfSplit() { return {{"Split", "split", &NewSplit}}; }

}  // namespace tessera::worker

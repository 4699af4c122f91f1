#include <algorithm>

#include "common/status_macros.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

// Indices [start, end) of one axis (ONNX Slice with one axis and step 1).
class Slice final : public Op {
 public:
  Slice(const Shape& input, size_t axis, int64_t start, int64_t end)
      : rows_(input.Product(0, axis)), width_(input.Product(axis, input.rank())) {
    const size_t inner = input.Product(axis + 1, input.rank());
    offset_ = static_cast<size_t>(start) * inner;
    taken_ = static_cast<size_t>(end - start) * inner;
    Shape output = input;
    output.set_dim(axis, end - start);
    outputs_ = {output};
  }

  bool BySample() const override { return true; }

  void Forward(const ForwardPass& pass) const override {
    const float* from = pass.inputs[0].data() + offset_;
    float* to = pass.outputs[0].data();
    for (size_t i = 0; i < pass.batch * rows_; ++i) {
      std::copy(from + i * width_, from + i * width_ + taken_, to + i * taken_);
    }
  }

  void Backward(const BackwardPass& pass) const override {
    const absl::Span<float> dx = pass.input_gradients[0];
    if (dx.empty()) return;
    std::fill(dx.begin(), dx.end(), 0.0f);
    const float* from = pass.output_gradients[0].data();
    float* to = dx.data() + offset_;
    for (size_t i = 0; i < pass.batch * rows_; ++i) {
      std::copy(from + i * taken_, from + (i + 1) * taken_, to + i * width_);
    }
  }

  bool RunsOnCuda() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    stream.CopyRows(pass.inputs[0].data() + offset_, width_, pass.outputs[0].data(), taken_,
                    pass.batch * rows_, taken_);
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    const absl::Span<float> dx = pass.input_gradients[0];
    if (dx.empty()) return;
    stream.Zero(dx.data(), dx.size());
    stream.CopyRows(pass.output_gradients[0].data(), taken_, dx.data() + offset_, width_,
                    pass.batch * rows_, taken_);
  }

 private:
  const size_t rows_;   // of a sample
  const size_t width_;  // floats of an input row
  size_t offset_ = 0;
  size_t taken_ = 0;
};

// Options: axis, counted with the batch as 0 (1); start (0); end, above start and at most the
// axis's size (its size). A negative start or end counts from the axis's end.
absl::StatusOr<std::unique_ptr<Op>> NewSlice(absl::Span<const Shape> inputs,
                                             OptionReader& options) {
  TESSERA_RETURN_IF_ERROR(
      ExpectShapes(inputs.size() == 1 && inputs[0].rank() >= 1, "one input [batch, ...]", inputs));
  TESSERA_ASSIGN_OR_RETURN(const size_t axis, inputs[0].SampleAxis(options.Int("axis", 1, -8, 8)));
  const int64_t size = inputs[0].dim(axis);
  int64_t start = options.Int("start", 0, -size, size - 1);
  int64_t end = options.Int("end", size, 1 - size, size);
  start += start < 0 ? size : 0;
  end += end < 0 ? size : 0;
  if (end <= start) options.Fail("end", absl::StrCat("must be above start, which is ", start));
  TESSERA_RETURN_IF_ERROR(options.Finish());
  return std::make_unique<Slice>(inputs[0], axis, start, end);
}

}  // namespace

std::vector<OpEntry> OpsOfSlice() { return {{"Slice", "slice", &NewSlice}}; }

}  // namespace tessera::worker

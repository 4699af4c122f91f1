#include <algorithm>

#include "common/status_macros.h"
#include "cuda/dense/strided.h"
#include "worker/dense/ops/broadcast.h"
#include "worker/dense/ops/cuda_strided.h"
#include "worker/dense/ops/lane_sum.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

// Repeats the axes of size 1 (ONNX Expand with a constant shape). Backward sums over them.
class Expand final : public Op {
 public:
  Expand(const Shape& input, const Shape& output) : rows_(BroadcastRows<1>(output, {input})) {
    outputs_ = {output};
  }

  bool BySample() const override { return true; }
  bool ReadsOutputs() const override { return false; }

  void Forward(const ForwardPass& pass) const override {
    rows_.ForEach(pass.batch, [&](size_t at, auto begin, size_t count, auto stride) {
      const float* const x = pass.inputs[0].data() + begin[0];
      float* const y = pass.outputs[0].data() + at;
      if (stride[0] == 0) {
        std::fill(y, y + count, *x);
      } else {
        std::copy(x, x + count, y);
      }
    });
  }

  void Backward(const BackwardPass& pass) const override {
    const absl::Span<float> dx = pass.input_gradients[0];
    if (dx.empty()) return;
    std::fill(dx.begin(), dx.end(), 0.0f);
    rows_.ForEach(pass.batch, [&](size_t at, auto begin, size_t count, auto stride) {
      const float* __restrict dy = pass.output_gradients[0].data() + at;
      float* __restrict to = dx.data() + begin[0];
      if (stride[0] == 0) {
        *to += LaneSum(count, [&](size_t i) { return dy[i]; });
      } else {
        for (size_t i = 0; i < count; ++i) to[i] += dy[i];
      }
    });
  }

  bool RunsOnCuda() const override { return FitsCuda(rows_); }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    cuda::CopyStrided(stream, CudaStrided(rows_, pass.batch), pass.inputs[0].data(),
                      pass.outputs[0].data());
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    if (pass.input_gradients[0].empty()) return;
    cuda::SumStrided(stream, CudaStrided(rows_, pass.batch), pass.output_gradients[0].data(),
                     pass.input_gradients[0].data());
  }

 private:
  const StridedRows<1> rows_;
};

// Options: shape (required): the batch first as 0, then the dimensions: those of the input, or any
// number in place of a 1. [0, 50, 16] makes [batch, 50, 16] of [batch, 1, 16].
absl::StatusOr<std::unique_ptr<Op>> NewExpand(absl::Span<const Shape> inputs,
                                              OptionReader& options) {
  const std::vector<int64_t> shape = options.Ints("shape", {}, 0, 1 << 20);
  if (shape.size() < 2 || shape[0] != 0) {
    options.Fail("shape", "expected a list that starts with 0, the batch, such as [0, 50, 16]");
  }
  TESSERA_RETURN_IF_ERROR(options.Finish());
  bool fits = inputs.size() == 1 && inputs[0].rank() + 1 == shape.size();
  Shape output;
  for (size_t i = 1; fits && i < shape.size(); ++i) {
    fits = shape[i] > 0 && (inputs[0].dim(i - 1) == 1 || inputs[0].dim(i - 1) == shape[i]);
    output.Append(shape[i]);
  }
  TESSERA_RETURN_IF_ERROR(ExpectShapes(
      fits, "one input with the dimensions of options.shape, or 1 in their place", inputs));
  return std::make_unique<Expand>(inputs[0], output);
}

}  // namespace

std::vector<OpEntry> OpsOfExpand() { return {{"Expand", "expand", &NewExpand}}; }

}  // namespace tessera::worker

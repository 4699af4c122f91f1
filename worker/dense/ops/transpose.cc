#include <vector>

#include "common/status_macros.h"
#include "cuda/dense/strided.h"
#include "worker/dense/ops/cuda_strided.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"
#include "worker/dense/ops/strided_rows.h"

namespace tessera::worker {
namespace {

// The walk through `output`, whose axis i is axis axes[i] of `input`.
StridedRows<1> PermutedRows(const Shape& input, const Shape& output,
                            const std::vector<size_t>& axes) {
  absl::InlinedVector<std::array<size_t, 1>, 4> strides;
  for (const size_t axis : axes) strides.push_back({input.Product(axis + 1, input.rank())});
  return StridedRows<1>(output, strides, {input.floats()});
}

// Axis i of the output is axis perm[i] of the input (ONNX Transpose); the batch stays first.
class Transpose final : public Op {
 public:
  // axes[i] is perm[i], both counted without the batch.
  Transpose(const Shape& input, const Shape& output, const std::vector<size_t>& axes)
      : rows_(PermutedRows(input, output, axes)),
        input_rows_(PermutedRows(output, input, Inverse(axes))) {
    outputs_ = {output};
  }

  bool BySample() const override { return true; }

  void Forward(const ForwardPass& pass) const override {
    rows_.ForEach(pass.batch, [&](size_t at, auto begin, size_t count, auto stride) {
      const float* __restrict x = pass.inputs[0].data() + begin[0];
      float* __restrict y = pass.outputs[0].data() + at;
      for (size_t i = 0; i < count; ++i) y[i] = x[i * stride[0]];
    });
  }

  void Backward(const BackwardPass& pass) const override {
    if (pass.input_gradients[0].empty()) return;
    rows_.ForEach(pass.batch, [&](size_t at, auto begin, size_t count, auto stride) {
      const float* __restrict dy = pass.output_gradients[0].data() + at;
      float* __restrict dx = pass.input_gradients[0].data() + begin[0];
      for (size_t i = 0; i < count; ++i) dx[i * stride[0]] = dy[i];
    });
  }

  bool RunsOnCuda() const override { return FitsCuda(rows_) && FitsCuda(input_rows_); }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    cuda::CopyStrided(stream, CudaStrided(rows_, pass.batch), pass.inputs[0].data(),
                      pass.outputs[0].data());
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    if (pass.input_gradients[0].empty()) return;
    cuda::CopyStrided(stream, CudaStrided(input_rows_, pass.batch), pass.output_gradients[0].data(),
                      pass.input_gradients[0].data());
  }

 private:
  static std::vector<size_t> Inverse(const std::vector<size_t>& axes) {
    std::vector<size_t> inverse(axes.size());
    for (size_t i = 0; i < axes.size(); ++i) inverse[axes[i]] = i;
    return inverse;
  }

  const StridedRows<1> rows_;        // through the output
  const StridedRows<1> input_rows_;  // through the input
};

// Options: perm (required), as in ONNX: [0, 2, 1] exchanges the two axes after the batch.
absl::StatusOr<std::unique_ptr<Op>> NewTranspose(absl::Span<const Shape> inputs,
                                                 OptionReader& options) {
  const std::vector<int64_t> perm = options.Ints("perm", {}, 0, 8);
  TESSERA_RETURN_IF_ERROR(
      ExpectShapes(inputs.size() == 1 && inputs[0].rank() >= 1, "one input [batch, ...]", inputs));
  const Shape& input = inputs[0];
  std::vector<bool> seen(input.rank() + 1, false);
  bool right = perm.size() == seen.size() && perm[0] == 0;
  for (const int64_t axis : perm) {
    right = right && axis < static_cast<int64_t>(seen.size()) && !seen[axis];
    if (right) seen[axis] = true;
  }
  if (!right) {
    options.Fail("perm", absl::StrCat("expected 0, the batch, and then each axis from 1 to ",
                                      input.rank(), " once"));
  }
  TESSERA_RETURN_IF_ERROR(options.Finish());
  Shape output;
  std::vector<size_t> axes;
  for (size_t i = 1; i < perm.size(); ++i) {
    axes.push_back(static_cast<size_t>(perm[i] - 1));
    output.Append(input.dim(axes.back()));
  }
  return std::make_unique<Transpose>(input, output, axes);
}

}  // namespace

std::vector<OpEntry> OpsOfTranspose() { return {{"Transpose", "transpose", &NewTranspose}}; }

}  // namespace tessera::worker

#include <algorithm>

#include "common/math/selection.h"
#include "common/status_macros.h"
#include "cuda/dense/where.h"
#include "worker/dense/ops/broadcast.h"
#include "worker/dense/ops/cuda_strided.h"
#include "worker/dense/ops/lane_sum.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

// y = a where c is not 0, else b, broadcast as ONNX does; ONNX's c is of truth values.
//   da = dy where a was chosen, else 0, db the other way round, summed over the axes in which a or
//   b is broadcast; dc = 0
class Where final : public Op {
 public:
  Where(const Shape& c, const Shape& a, const Shape& b, const Shape& output)
      : rows_(BroadcastRows<3>(output, {c, a, b})), whole_{c == output, a == output, b == output} {
    outputs_ = {output};
  }

  bool BySample() const override { return true; }
  bool ReadsOutputs() const override { return false; }

  void Forward(const ForwardPass& pass) const override {
    rows_.ForEach(pass.batch, [&](size_t at, auto begin, size_t count, auto stride) {
      const float* __restrict c = pass.inputs[0].data() + begin[0];
      const float* __restrict a = pass.inputs[1].data() + begin[1];
      const float* __restrict b = pass.inputs[2].data() + begin[2];
      float* __restrict y = pass.outputs[0].data() + at;
      for (size_t i = 0; i < count; ++i) {
        y[i] = math::Selection::Value(c[stride[0] * i], a[stride[1] * i], b[stride[2] * i]);
      }
    });
  }

  void Backward(const BackwardPass& pass) const override {
    const absl::Span<float> dc = pass.input_gradients[0];
    std::fill(dc.begin(), dc.end(), 0.0f);
    InputGradient<1>(pass);
    InputGradient<2>(pass);
  }

  bool RunsOnCuda() const override { return FitsCuda(rows_); }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    cuda::Where(stream, CudaStrided(rows_, pass.batch), pass.inputs[0].data(),
                pass.inputs[1].data(), pass.inputs[2].data(), pass.outputs[0].data());
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    stream.Zero(pass.input_gradients[0].data(), pass.input_gradients[0].size());
    CudaInputGradient<1>(stream, pass);
    CudaInputGradient<2>(stream, pass);
  }

 private:
  template <int kOf>
  void InputGradient(const BackwardPass& pass) const {
    const absl::Span<float> dx = pass.input_gradients[kOf];
    if (dx.empty()) return;
    if (!whole_[kOf]) std::fill(dx.begin(), dx.end(), 0.0f);
    rows_.ForEach(pass.batch, [&](size_t at, auto begin, size_t count, auto stride) {
      const float* __restrict c = pass.inputs[0].data() + begin[0];
      const float* __restrict dy = pass.output_gradients[0].data() + at;
      float* __restrict to = dx.data() + begin[kOf];
      const auto gradient = [&](size_t i) {
        return math::Selection::Gradient<kOf>(c[stride[0] * i], dy[i]);
      };
      if (stride[kOf] == 0) {
        *to += LaneSum(count, gradient);
      } else if (whole_[kOf]) {
        for (size_t i = 0; i < count; ++i) to[i] = gradient(i);
      } else {
        for (size_t i = 0; i < count; ++i) to[i] += gradient(i);
      }
    });
  }

  template <int kOf>
  void CudaInputGradient(cuda::Stream& stream, const BackwardPass& pass) const {
    const absl::Span<float> dx = pass.input_gradients[kOf];
    if (dx.empty()) return;
    cuda::WhereGradient<kOf>(stream, CudaStrided(rows_, pass.batch), pass.inputs[0].data(),
                             pass.output_gradients[0].data(), dx.data());
  }

  const StridedRows<3> rows_;
  const bool whole_[3];  // not broadcast
};

absl::StatusOr<std::unique_ptr<Op>> NewWhere(absl::Span<const Shape> inputs,
                                             OptionReader& options) {
  TESSERA_RETURN_IF_ERROR(options.Finish());
  Shape output;
  TESSERA_RETURN_IF_ERROR(
      ExpectShapes(inputs.size() == 3 && BroadcastShape(inputs, &output),
                   "three inputs of one shape, or of one rank with 1 where they differ: a "
                   "condition and what to take where it is not 0 and where it is",
                   inputs));
  return std::make_unique<Where>(inputs[0], inputs[1], inputs[2], output);
}

}  // namespace

std::vector<OpEntry> OpsOfWhere() { return {{"Where", "where", &NewWhere}}; }

}  // namespace tessera::worker

// ReduceSum and ReduceMean.
#include "common/status_macros.h"
#include "cuda/dense/strided.h"
#include "worker/dense/ops/lane_sum.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/reduce_axes.h"

namespace tessera::worker {
namespace {

// A factor times the sum over neighbouring axes (ONNX ReduceSum; ReduceMean with 1 / size).
class ReduceSum final : public Op {
 public:
  ReduceSum(const ReducedAxes& axes, float factor) : axes_(axes), factor_(factor) {
    outputs_ = {axes.output};
  }

  bool BySample() const override { return true; }

  void Forward(const ForwardPass& pass) const override {
    const size_t inner = axes_.inner;
    for (size_t i = 0; i < pass.batch * axes_.outer; ++i) {
      const float* __restrict x = pass.inputs[0].data() + i * axes_.size * inner;
      float* __restrict y = pass.outputs[0].data() + i * inner;
      if (inner == 1) {
        *y = factor_ * LaneSum(axes_.size, [&](size_t s) { return x[s]; });
        continue;
      }
      for (size_t j = 0; j < inner; ++j) y[j] = x[j];
      for (size_t s = 1; s < axes_.size; ++s) {
        for (size_t j = 0; j < inner; ++j) y[j] += x[s * inner + j];
      }
      if (factor_ == 1) continue;
      for (size_t j = 0; j < inner; ++j) y[j] *= factor_;
    }
  }

  void Backward(const BackwardPass& pass) const override {
    if (pass.input_gradients[0].empty()) return;
    const size_t inner = axes_.inner;
    for (size_t i = 0; i < pass.batch * axes_.outer; ++i) {
      const float* __restrict dy = pass.output_gradients[0].data() + i * inner;
      float* __restrict dx = pass.input_gradients[0].data() + i * axes_.size * inner;
      for (size_t s = 0; s < axes_.size; ++s) {
        for (size_t j = 0; j < inner; ++j) dx[s * inner + j] = factor_ * dy[j];
      }
    }
  }

  bool RunsOnCuda() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    cuda::SumStrided(stream, CudaAxes(pass.batch), pass.inputs[0].data(), pass.outputs[0].data(),
                     factor_);
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    if (pass.input_gradients[0].empty()) return;
    cuda::CopyStrided(stream, CudaAxes(pass.batch), pass.output_gradients[0].data(),
                      pass.input_gradients[0].data(), factor_);
  }

 private:
  // A walk through x with the strides of y.
  cuda::StridedAxes<1> CudaAxes(size_t batch) const {
    const auto inner = static_cast<int64_t>(axes_.inner);
    cuda::StridedAxes<1> axes;
    axes.Append(inner, {{1}});
    axes.Append(static_cast<int64_t>(axes_.size), {{0}});
    axes.Append(static_cast<int64_t>(batch * axes_.outer), {{inner}});
    return axes;
  }

  const ReducedAxes axes_;
  const float factor_;
};

// Options of both: see reduce_axes.h.
absl::StatusOr<std::unique_ptr<Op>> NewReduceSum(absl::Span<const Shape> inputs,
                                                 OptionReader& options) {
  TESSERA_ASSIGN_OR_RETURN(const ReducedAxes axes, ReadReducedAxes(inputs, options));
  return std::make_unique<ReduceSum>(axes, 1.0f);
}

absl::StatusOr<std::unique_ptr<Op>> NewReduceMean(absl::Span<const Shape> inputs,
                                                  OptionReader& options) {
  TESSERA_ASSIGN_OR_RETURN(const ReducedAxes axes, ReadReducedAxes(inputs, options));
  return std::make_unique<ReduceSum>(axes, 1 / static_cast<float>(axes.size));
}

}  // namespace

std::vector<OpEntry> OpsOfReduceSum() {
  return {{"ReduceMean", "reduce_mean", &NewReduceMean},
          {"ReduceSum", "reduce_sum", &NewReduceSum}};
}

}  // namespace tessera::worker

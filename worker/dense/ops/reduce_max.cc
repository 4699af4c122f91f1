#include <algorithm>

#include "common/math/arithmetic.h"
#include "common/status_macros.h"
#include "cuda/dense/reduce_max.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/reduce_axes.h"

namespace tessera::worker {
namespace {

// The largest over neighbouring axes (ONNX ReduceMax). The gradient goes to the first of those that
// are equal to it.
class ReduceMax final : public Op {
 public:
  explicit ReduceMax(const ReducedAxes& axes) : axes_(axes) { outputs_ = {axes.output}; }

  bool BySample() const override { return true; }

  void Forward(const ForwardPass& pass) const override {
    const size_t inner = axes_.inner;
    for (size_t i = 0; i < pass.batch * axes_.outer; ++i) {
      const float* __restrict x = pass.inputs[0].data() + i * axes_.size * inner;
      float* __restrict y = pass.outputs[0].data() + i * inner;
      std::copy(x, x + inner, y);
      for (size_t s = 1; s < axes_.size; ++s) {
        for (size_t j = 0; j < inner; ++j) {
          y[j] = math::Maximum::Value(y[j], x[s * inner + j]);
        }
      }
    }
  }

  void Backward(const BackwardPass& pass) const override {
    if (pass.input_gradients[0].empty()) return;
    const size_t inner = axes_.inner;
    for (size_t i = 0; i < pass.batch * axes_.outer; ++i) {
      const float* __restrict x = pass.inputs[0].data() + i * axes_.size * inner;
      const float* __restrict y = pass.outputs[0].data() + i * inner;
      const float* __restrict dy = pass.output_gradients[0].data() + i * inner;
      float* __restrict dx = pass.input_gradients[0].data() + i * axes_.size * inner;
      for (size_t j = 0; j < inner; ++j) {
        float left = dy[j];
        for (size_t s = 0; s < axes_.size; ++s) {
          const bool here = x[s * inner + j] == y[j];
          dx[s * inner + j] = here ? left : 0;
          if (here) left = 0;
        }
      }
    }
  }

  bool RunsOnCuda() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    cuda::ReduceMax(stream, pass.inputs[0].data(), pass.outputs[0].data(), CudaOuter(pass.batch),
                    static_cast<int64_t>(axes_.size), static_cast<int64_t>(axes_.inner));
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    if (pass.input_gradients[0].empty()) return;
    cuda::ReduceMaxGradient(stream, pass.inputs[0].data(), pass.outputs[0].data(),
                            pass.output_gradients[0].data(), pass.input_gradients[0].data(),
                            CudaOuter(pass.batch), static_cast<int64_t>(axes_.size),
                            static_cast<int64_t>(axes_.inner));
  }

 private:
  int64_t CudaOuter(size_t batch) const { return static_cast<int64_t>(batch * axes_.outer); }

  const ReducedAxes axes_;
};

// Options: see reduce_axes.h.
absl::StatusOr<std::unique_ptr<Op>> NewReduceMax(absl::Span<const Shape> inputs,
                                                 OptionReader& options) {
  TESSERA_ASSIGN_OR_RETURN(const ReducedAxes axes, ReadReducedAxes(inputs, options));
  return std::make_unique<ReduceMax>(axes);
}

}  // namespace

std::vector<OpEntry> OpsOfReduceMax() { return {{"ReduceMax", "reduce_max", &NewReduceMax}}; }

}  // namespace tessera::worker

#include <algorithm>

#include "common/math/arithmetic.h"
#include "common/status_macros.h"
#include "cuda/dense/arithmetic.h"
#include "cuda/dense/strided.h"
#include "worker/dense/ops/broadcast.h"
#include "worker/dense/ops/cuda_strided.h"
#include "worker/dense/ops/lane_sum.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

// y = x1 + x2 + ..., broadcast as ONNX does (Add; Sum for more than two).
//   dx_k = dy, summed over the axes in which x_k is broadcast
class Add final : public Op {
 public:
  Add(absl::Span<const Shape> inputs, const Shape& output) {
    outputs_ = {output};
    for (const Shape& input : inputs) {
      whole_.push_back(input == output);
      rows_.push_back(BroadcastRows<1>(output, {input}));
    }
    for (size_t k = 1; k < inputs.size(); ++k) {
      additions_.push_back(BroadcastRows<2>(output, {k == 1 ? inputs[0] : output, inputs[k]}));
    }
  }

  bool BySample() const override { return true; }
  bool ReadsOutputs() const override { return false; }

  void Forward(const ForwardPass& pass) const override {
    float* y = pass.outputs[0].data();
    for (size_t k = 0; k < rows_.size(); ++k) {
      rows_[k].ForEach(pass.batch, [&](size_t at, auto begin, size_t count, auto stride) {
        const float* __restrict x = pass.inputs[k].data() + begin[0];
        float* __restrict out = y + at;
        if (stride[0] == 0) {
          const float value = *x;
          for (size_t i = 0; i < count; ++i) out[i] = (k == 0 ? 0 : out[i]) + value;
        } else if (k == 0) {
          std::copy(x, x + count, out);
        } else {
          for (size_t i = 0; i < count; ++i) out[i] += x[i];
        }
      });
    }
  }

  void Backward(const BackwardPass& pass) const override {
    const absl::Span<const float> dy = pass.output_gradients[0];
    for (size_t k = 0; k < rows_.size(); ++k) {
      const absl::Span<float> dx = pass.input_gradients[k];
      if (dx.empty()) continue;
      if (whole_[k]) {
        std::copy(dy.begin(), dy.end(), dx.begin());
        continue;
      }
      std::fill(dx.begin(), dx.end(), 0.0f);
      rows_[k].ForEach(pass.batch, [&](size_t at, auto begin, size_t count, auto stride) {
        const float* __restrict from = dy.data() + at;
        float* __restrict to = dx.data() + begin[0];
        if (stride[0] == 0) {
          *to += LaneSum(count, [&](size_t i) { return from[i]; });
        } else {
          for (size_t i = 0; i < count; ++i) to[i] += from[i];
        }
      });
    }
  }

  bool RunsOnCuda() const override {
    return std::all_of(additions_.begin(), additions_.end(), FitsCuda<2>);
  }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    float* const y = pass.outputs[0].data();
    for (size_t k = 1; k < rows_.size(); ++k) {
      cuda::Arithmetic<math::Addition>(stream, CudaStrided(additions_[k - 1], pass.batch),
                                       k == 1 ? pass.inputs[0].data() : y, pass.inputs[k].data(),
                                       y);
    }
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    const float* const dy = pass.output_gradients[0].data();
    for (size_t k = 0; k < rows_.size(); ++k) {
      const absl::Span<float> dx = pass.input_gradients[k];
      if (dx.empty()) continue;
      if (whole_[k]) {
        stream.Copy(dy, dx.data(), dx.size());
      } else {
        cuda::SumStrided(stream, CudaStrided(rows_[k], pass.batch), dy, dx.data());
      }
    }
  }

 private:
  std::vector<StridedRows<1>> rows_;       // by input
  std::vector<StridedRows<2>> additions_;  // of the second input to the first, the third to y, ...
  std::vector<bool> whole_;                // by input: not broadcast
};

absl::StatusOr<std::unique_ptr<Op>> NewAdd(absl::Span<const Shape> inputs, OptionReader& options) {
  TESSERA_RETURN_IF_ERROR(options.Finish());
  Shape output;
  TESSERA_RETURN_IF_ERROR(ExpectShapes(inputs.size() >= 2 && BroadcastShape(inputs, &output),
                                       "two or more inputs of one shape, or of one rank with 1 "
                                       "where they differ",
                                       inputs));
  return std::make_unique<Add>(inputs, output);
}

}  // namespace

std::vector<OpEntry> OpsOfAdd() { return {{"Add", "add", &NewAdd}}; }

}  // namespace tessera::worker

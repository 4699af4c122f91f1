#include <algorithm>

#include "common/math/interaction/factorization_machine.h"
#include "common/status_macros.h"
#include "cuda/dense/factorization_machine.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

using math::FactorizationMachine;

// The second-order part of a factorization machine (Rendle 2010, equation 5 and lemma 3.1), for
// field vectors v [batch, fields, dim], summed over dim to [batch, 1]:
//   y = 1/2 sum_d ((sum_f v_fd)^2 - sum_f v_fd^2)
//   dv_fd = dy (S_d - v_fd),  S_d = sum_f v_fd
// or, if not `sum`, the summand of each d, [batch, dim]: bi-interaction pooling (He, Chua 2017,
// arXiv:1708.05027, equation 4).
class Fm final : public Op {
 public:
  Fm(const Shape& input, bool sum)
      : fields_(static_cast<size_t>(input.dim(0))),
        dim_(static_cast<size_t>(input.dim(1))),
        sum_(sum) {
    outputs_ = {Shape{sum ? 1 : input.dim(1)}};
  }

  // S [batch, dim]
  size_t KeptFloats(size_t batch) const override { return batch * dim_; }

  bool BySample() const override { return true; }

  void Forward(const ForwardPass& pass) const override {
    for (size_t i = 0; i < pass.batch; ++i) {
      const float* __restrict v = pass.inputs[0].data() + i * fields_ * dim_;
      float twice = 0;
      for (size_t begin = 0; begin < dim_; begin += kTile) {
        const size_t width = std::min(kTile, dim_ - begin);
        float sum[kTile] = {};
        float squares[kTile] = {};
        for (size_t f = 0; f < fields_; ++f) {
          for (size_t d = 0; d < width; ++d) {
            const float value = v[f * dim_ + begin + d];
            sum[d] += value;
            squares[d] += value * value;
          }
        }
        for (size_t d = 0; d < width; ++d) {
          const float pairs = FactorizationMachine::TwicePairs(sum[d], squares[d]);
          if (sum_) {
            twice += pairs;
          } else {
            pass.outputs[0][i * dim_ + begin + d] = 0.5f * pairs;
          }
        }
        if (pass.training) std::copy(sum, sum + width, pass.kept.data() + i * dim_ + begin);
      }
      if (sum_) pass.outputs[0][i] = 0.5f * twice;
    }
  }

  void Backward(const BackwardPass& pass) const override {
    if (pass.input_gradients[0].empty()) return;
    for (size_t i = 0; i < pass.batch; ++i) {
      const float* __restrict v = pass.inputs[0].data() + i * fields_ * dim_;
      const float* __restrict sum = pass.kept.data() + i * dim_;
      float* __restrict dv = pass.input_gradients[0].data() + i * fields_ * dim_;
      const float* __restrict dy = pass.output_gradients[0].data() + i * (sum_ ? 1 : dim_);
      for (size_t f = 0; f < fields_; ++f) {
        for (size_t d = 0; d < dim_; ++d) {
          dv[f * dim_ + d] =
              dy[sum_ ? 0 : d] * FactorizationMachine::Derivative(sum[d], v[f * dim_ + d]);
        }
      }
    }
  }

  bool RunsOnCuda() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    cuda::FactorizationMachine(stream, pass.inputs[0].data(), pass.outputs[0].data(),
                               pass.training ? pass.kept.data() : nullptr, pass.batch, fields_,
                               dim_, sum_);
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    if (pass.input_gradients[0].empty()) return;
    cuda::FactorizationMachineBackward(
        stream, pass.inputs[0].data(), pass.kept.data(), pass.output_gradients[0].data(),
        pass.input_gradients[0].data(), pass.batch, fields_, dim_, sum_);
  }

 private:
  static constexpr size_t kTile = 64;
  const size_t fields_;
  const size_t dim_;
  const bool sum_;
};

// Options: sum, over dim (true).
absl::StatusOr<std::unique_ptr<Op>> NewFm(absl::Span<const Shape> inputs, OptionReader& options) {
  const bool sum = options.Bool("sum", true);
  TESSERA_RETURN_IF_ERROR(options.Finish());
  TESSERA_RETURN_IF_ERROR(ExpectShapes(inputs.size() == 1 && inputs[0].rank() == 2,
                                       "one input [batch, fields, dim]", inputs));
  return std::make_unique<Fm>(inputs[0], sum);
}

}  // namespace

std::vector<OpEntry> OpsOfFm() { return {{"FM", "fm", &NewFm}}; }

}  // namespace tessera::worker

#include <algorithm>

#include "common/math/interaction/field_pair.h"
#include "common/status_macros.h"
#include "cuda/dense/field_aware_pairs.h"
#include "worker/dense/ops/lane_sum.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

// Field-aware pairs (Juan et al. 2016, "Field-aware Factorization Machines for CTR Prediction",
// RecSys, equation 4). Every field has a vector of k floats for each other field, in the order of
// the other fields: v [batch, fields, (fields - 1) k] to [batch, 1].
//   y = sum over i < j of v_i,j . v_j,i;  dv_i,j = dy v_j,i
class Ffm final : public Op {
 public:
  explicit Ffm(const Shape& input)
      : fields_(static_cast<size_t>(input.dim(0))),
        width_(static_cast<size_t>(input.dim(1))),
        dim_(width_ / (fields_ - 1)) {
    outputs_ = {Shape{1}};
  }

  bool BySample() const override { return true; }

  void Forward(const ForwardPass& pass) const override {
    for (size_t b = 0; b < pass.batch; ++b) {
      const float* __restrict v = pass.inputs[0].data() + b * fields_ * width_;
      float sum = 0;
      for (size_t i = 0; i < fields_; ++i) {
        for (size_t j = i + 1; j < fields_; ++j) {
          const float* __restrict left = v + Towards(i, j);
          const float* __restrict right = v + Towards(j, i);
          sum += LaneSum(dim_, [&](size_t d) { return left[d] * right[d]; });
        }
      }
      pass.outputs[0][b] = sum;
    }
  }

  void Backward(const BackwardPass& pass) const override {
    if (pass.input_gradients[0].empty()) return;
    for (size_t b = 0; b < pass.batch; ++b) {
      const float* __restrict v = pass.inputs[0].data() + b * fields_ * width_;
      float* __restrict dv = pass.input_gradients[0].data() + b * fields_ * width_;
      const float dy = pass.output_gradients[0][b];
      for (size_t i = 0; i < fields_; ++i) {
        for (size_t j = 0; j < fields_; ++j) {
          if (i == j) continue;
          const size_t to = Towards(i, j), from = Towards(j, i);
          for (size_t d = 0; d < dim_; ++d) dv[to + d] = dy * v[from + d];
        }
      }
    }
  }

  bool RunsOnCuda() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    cuda::FieldAwarePairs(stream, pass.inputs[0].data(), pass.outputs[0].data(), pass.batch,
                          fields_, dim_);
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    if (pass.input_gradients[0].empty()) return;
    cuda::FieldAwarePairsBackward(stream, pass.inputs[0].data(), pass.output_gradients[0].data(),
                                  pass.input_gradients[0].data(), pass.batch, fields_, dim_);
  }

 private:
  // Where field i's vector for field j begins in a sample.
  size_t Towards(size_t i, size_t j) const { return math::FieldAwareIndex(i, j, fields_) * dim_; }

  const size_t fields_;
  const size_t width_;
  const size_t dim_;
};

absl::StatusOr<std::unique_ptr<Op>> NewFfm(absl::Span<const Shape> inputs, OptionReader& options) {
  TESSERA_RETURN_IF_ERROR(options.Finish());
  TESSERA_RETURN_IF_ERROR(ExpectShapes(
      inputs.size() == 1 && inputs[0].rank() == 2 && inputs[0].dim(0) >= 2 &&
          inputs[0].dim(1) % (inputs[0].dim(0) - 1) == 0,
      "one input [batch, 2 or more fields, (fields - 1) k], k floats for each other field",
      inputs));
  return std::make_unique<Ffm>(inputs[0]);
}

}  // namespace

std::vector<OpEntry> OpsOfFfm() { return {{"FFM", "ffm", &NewFfm}}; }

}  // namespace tessera::worker

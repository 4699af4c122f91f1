#include <algorithm>

#include "common/status_macros.h"
#include "cuda/dense/field_pairs.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

// Elementwise products of all pairs of field vectors (the pair-wise interaction layer of Xiao et
// al. 2017, arXiv:1708.04617): v [batch, fields, dim] to y [batch, pairs, dim], the pairs (0, 1),
// (0, 2), ..., (1, 2), ...
//   y_ij = v_i * v_j;  dv_i = sum over j != i of dy_ij * v_j
class FieldPairs final : public Op {
 public:
  explicit FieldPairs(const Shape& input)
      : fields_(static_cast<size_t>(input.dim(0))), dim_(static_cast<size_t>(input.dim(1))) {
    outputs_ = {Shape{input.dim(0) * (input.dim(0) - 1) / 2, input.dim(1)}};
  }

  bool BySample() const override { return true; }

  void Forward(const ForwardPass& pass) const override {
    float* __restrict y = pass.outputs[0].data();
    for (size_t b = 0; b < pass.batch; ++b) {
      const float* __restrict v = pass.inputs[0].data() + b * fields_ * dim_;
      for (size_t i = 0; i < fields_; ++i) {
        for (size_t j = i + 1; j < fields_; ++j, y += dim_) {
          for (size_t d = 0; d < dim_; ++d) y[d] = v[i * dim_ + d] * v[j * dim_ + d];
        }
      }
    }
  }

  void Backward(const BackwardPass& pass) const override {
    const absl::Span<float> all = pass.input_gradients[0];
    if (all.empty()) return;
    std::fill(all.begin(), all.end(), 0.0f);
    const float* __restrict dy = pass.output_gradients[0].data();
    for (size_t b = 0; b < pass.batch; ++b) {
      const float* __restrict v = pass.inputs[0].data() + b * fields_ * dim_;
      float* __restrict dv = all.data() + b * fields_ * dim_;
      for (size_t i = 0; i < fields_; ++i) {
        for (size_t j = i + 1; j < fields_; ++j, dy += dim_) {
          for (size_t d = 0; d < dim_; ++d) dv[i * dim_ + d] += dy[d] * v[j * dim_ + d];
          for (size_t d = 0; d < dim_; ++d) dv[j * dim_ + d] += dy[d] * v[i * dim_ + d];
        }
      }
    }
  }

  bool RunsOnCuda() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    cuda::FieldPairs(stream, pass.inputs[0].data(), pass.outputs[0].data(), pass.batch, fields_,
                     dim_);
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    if (pass.input_gradients[0].empty()) return;
    cuda::FieldPairsBackward(stream, pass.inputs[0].data(), pass.output_gradients[0].data(),
                             pass.input_gradients[0].data(), pass.batch, fields_, dim_);
  }

 private:
  const size_t fields_;
  const size_t dim_;
};

absl::StatusOr<std::unique_ptr<Op>> NewFieldPairs(absl::Span<const Shape> inputs,
                                                  OptionReader& options) {
  TESSERA_RETURN_IF_ERROR(options.Finish());
  TESSERA_RETURN_IF_ERROR(
      ExpectShapes(inputs.size() == 1 && inputs[0].rank() == 2 && inputs[0].dim(0) >= 2,
                   "one input [batch, 2 or more fields, dim]", inputs));
  return std::make_unique<FieldPairs>(inputs[0]);
}

}  // namespace

std::vector<OpEntry> OpsOfFieldPairs() { return {{"FieldPairs", "field_pairs", &NewFieldPairs}}; }

}  // namespace tessera::worker

#include <algorithm>

#include "common/status_macros.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

// Dot products of all pairs of field vectors (Naumov et al. 2019, DLRM, arXiv:1906.00091): v
// [batch, fields, dim] to y [batch, pairs], the lower triangle of v v^T row by row, with the
// diagonal where `self`:
//   y_ij = v_i . v_j, j < i (j <= i);  dv_i = sum over j != i of dy_ij v_j (+ 2 dy_ii v_i)
class DotInteraction final : public Op {
 public:
  DotInteraction(const Shape& input, bool self)
      : fields_(static_cast<size_t>(input.dim(0))),
        dim_(static_cast<size_t>(input.dim(1))),
        self_(self ? 1 : 0) {
    outputs_ = {Shape{static_cast<int64_t>(RowBegin(fields_))}};
  }

  // Fields are taken sixteen at a time and turned into columns, so that a row of products is a
  // vector and no sum goes across one.
  void Forward(const ForwardPass& pass) const override {
    const size_t pairs = RowBegin(fields_);
    for (size_t b = 0; b < pass.batch; ++b) {
      const float* __restrict v = pass.inputs[0].data() + b * fields_ * dim_;
      float* __restrict y = pass.outputs[0].data() + b * pairs;
      for (size_t first = 0; first + 1 - self_ < fields_; first += kFields) {
        const size_t columns = std::min(kFields, fields_ - first);
        for (size_t begin = 0; begin < dim_; begin += kDims) {
          const size_t dims = std::min(kDims, dim_ - begin);
          float turned[kDims][kFields];
          for (size_t j = 0; j < kFields; ++j) {
            const float* from = v + (first + std::min(j, columns - 1)) * dim_ + begin;
            for (size_t d = 0; d < dims; ++d) turned[d][j] = from[d];
          }
          for (size_t i = first + 1 - self_; i < fields_; ++i) {
            float products[kFields] = {};
            for (size_t d = 0; d < dims; ++d) {
              const float value = v[i * dim_ + begin + d];
              for (size_t j = 0; j < kFields; ++j) products[j] += value * turned[d][j];
            }
            const size_t count = std::min(columns, i + self_ - first);
            float* to = y + RowBegin(i) + first;
            for (size_t j = 0; j < count; ++j) to[j] = (begin == 0 ? 0 : to[j]) + products[j];
          }
        }
      }
    }
  }

  void Backward(const BackwardPass& pass) const override {
    if (pass.input_gradients[0].empty()) return;
    const size_t pairs = RowBegin(fields_);
    for (size_t b = 0; b < pass.batch; ++b) {
      const float* __restrict v = pass.inputs[0].data() + b * fields_ * dim_;
      const float* __restrict dy = pass.output_gradients[0].data() + b * pairs;
      float* __restrict dv = pass.input_gradients[0].data() + b * fields_ * dim_;
      for (size_t begin = 0; begin < dim_; begin += kFields) {
        const size_t dims = std::min(kFields, dim_ - begin);
        for (size_t i = 0; i < fields_; ++i) {
          float sum[kFields] = {};
          const auto add = [&](size_t j, float factor) {
            const float* __restrict from = v + j * dim_ + begin;
            for (size_t d = 0; d < dims; ++d) sum[d] += factor * from[d];
          };
          for (size_t j = 0; j < i; ++j) add(j, dy[RowBegin(i) + j]);
          if (self_ == 1) add(i, 2 * dy[RowBegin(i) + i]);
          for (size_t j = i + 1; j < fields_; ++j) add(j, dy[RowBegin(j) + i]);
          std::copy(sum, sum + dims, dv + i * dim_ + begin);
        }
      }
    }
  }

 private:
  static constexpr size_t kFields = 16;
  static constexpr size_t kDims = 64;

  // Where the pairs of field i with those before it begin.
  size_t RowBegin(size_t i) const { return i * (i - 1 + 2 * self_) / 2; }

  const size_t fields_;
  const size_t dim_;
  const size_t self_;  // 1: with the diagonal
};

}  // namespace

// Options: self, whether a field also meets itself (false).
absl::StatusOr<std::unique_ptr<Op>> NewDotInteraction(absl::Span<const Shape> inputs,
                                                      OptionReader& options) {
  const bool self = options.Bool("self", false);
  TESSERA_RETURN_IF_ERROR(options.Finish());
  TESSERA_RETURN_IF_ERROR(ExpectShapes(
      inputs.size() == 1 && inputs[0].rank() == 2 && (self || inputs[0].dim(0) >= 2),
      self ? "one input [batch, fields, dim]" : "one input [batch, 2 or more fields, dim]",
      inputs));
  return std::make_unique<DotInteraction>(inputs[0], self);
}

}  // namespace tessera::worker

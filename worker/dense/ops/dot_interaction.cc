#include <algorithm>

#include "common/math/interaction/field_pair.h"
#include "common/status_macros.h"
#include "cuda/dense/dot_interaction.h"
#include "worker/dense/ops/lanes.h"
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

  bool BySample() const override { return true; }

  // Eight fields at a time are turned into columns; another field's products with them are then one
  // vector, and no sum goes across it.
  void Forward(const ForwardPass& pass) const override {
    const size_t pairs = RowBegin(fields_);
    for (size_t b = 0; b < pass.batch; ++b) {
      const float* v = pass.inputs[0].data() + b * fields_ * dim_;
      float* y = pass.outputs[0].data() + b * pairs;
      for (size_t first = 0; first + 1 - self_ < fields_; first += kLanes) {
        for (size_t begin = 0; begin < dim_; begin += kDims) Products(v, first, begin, y);
      }
    }
  }

  void Backward(const BackwardPass& pass) const override {
    if (pass.input_gradients[0].empty()) return;
    const size_t pairs = RowBegin(fields_);
    for (size_t b = 0; b < pass.batch; ++b) {
      const float* v = pass.inputs[0].data() + b * fields_ * dim_;
      const float* dy = pass.output_gradients[0].data() + b * pairs;
      float* dv = pass.input_gradients[0].data() + b * fields_ * dim_;
      for (size_t begin = 0; begin < dim_; begin += kLanes) {
        const size_t count = std::min(kLanes, dim_ - begin);
        for (size_t top = 0; top < fields_; top += kRows) Gradients(v, dy, top, begin, count, dv);
      }
    }
  }

  bool RunsOnCuda() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    cuda::DotInteraction(stream, pass.inputs[0].data(), pass.outputs[0].data(), pass.batch, fields_,
                         dim_, self_ != 0);
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    if (pass.input_gradients[0].empty()) return;
    cuda::DotInteractionBackward(stream, pass.inputs[0].data(), pass.output_gradients[0].data(),
                                 pass.input_gradients[0].data(), pass.batch, fields_, dim_,
                                 self_ != 0);
  }

 private:
  static constexpr size_t kDims = 256;
  static constexpr size_t kRows = 4;  // sums that go on side by side

  // What floats `begin` and the next kDims of the vectors add to the products with the eight fields
  // from `first` on. Only those pairs are written that belong to the triangle.
  void Products(const float* __restrict v, size_t first, size_t begin, float* __restrict y) const {
    const size_t dims = std::min(kDims, dim_ - begin);
    float columns[kDims * kLanes];
    for (size_t j = 0; j < kLanes; ++j) {
      const float* from = v + std::min(first + j, fields_ - 1) * dim_ + begin;
      for (size_t d = 0; d < dims; ++d) columns[d * kLanes + j] = from[d];
    }
    for (size_t top = first + 1 - self_; top < fields_; top += kRows) {
      const float* row[kRows];
      for (size_t r = 0; r < kRows; ++r) row[r] = v + std::min(top + r, fields_ - 1) * dim_ + begin;
      Lanes sum[kRows] = {};
      for (size_t d = 0; d < dims; ++d) {
        const Lanes column = LoadLanes(columns + d * kLanes);
        for (size_t r = 0; r < kRows; ++r) sum[r] += row[r][d] * column;
      }
      for (size_t i = top; i < std::min(top + kRows, fields_); ++i) {
        const size_t count = std::min(kLanes, i + self_ - first);
        float* to = y + RowBegin(i) + first;
        for (size_t j = 0; j < count; ++j) to[j] = (begin == 0 ? 0 : to[j]) + sum[i - top][j];
      }
    }
  }

  // Floats [begin, begin + count) of dv of fields `top` and the next.
  void Gradients(const float* __restrict v, const float* __restrict dy, size_t top, size_t begin,
                 size_t count, float* __restrict dv) const {
    const auto load = [&](size_t j) {
      const float* from = v + j * dim_ + begin;
      if (count == kLanes) return LoadLanes(from);
      Lanes part = {};
      std::memcpy(&part, from, count * sizeof(float));
      return part;
    };
    const size_t rows = std::min(kRows, fields_ - top);
    Lanes sum[kRows] = {};
    // The fields before them all, those among them, those after them all.
    const float* before[kRows];
    for (size_t r = 0; r < kRows; ++r) before[r] = dy + RowBegin(std::min(top + r, fields_ - 1));
    for (size_t j = 0; j < top; ++j) {
      const Lanes from = load(j);
      for (size_t r = 0; r < kRows; ++r) sum[r] += before[r][j] * from;
    }
    for (size_t j = top; j < top + rows; ++j) {
      const Lanes from = load(j);
      for (size_t r = 0; r < rows; ++r) {
        const size_t i = top + r;
        if (i == j && self_ == 0) continue;
        sum[r] += (i == j ? 2 : 1) * dy[RowBegin(std::max(i, j)) + std::min(i, j)] * from;
      }
    }
    for (size_t j = top + kRows; j < fields_; ++j) {
      const Lanes from = load(j);
      const float* after = dy + RowBegin(j) + top;
      for (size_t r = 0; r < kRows; ++r) sum[r] += after[r] * from;
    }
    for (size_t r = 0; r < rows; ++r) {
      std::memcpy(dv + (top + r) * dim_ + begin, &sum[r], count * sizeof(float));
    }
  }

  // Where the pairs of field i with those before it begin.
  size_t RowBegin(size_t i) const {
    return static_cast<size_t>(math::FieldPair::RowBegin(static_cast<int64_t>(i), self_ != 0));
  }

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

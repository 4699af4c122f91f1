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

  // Vectors are transposed into columns, so that one vector's products with eight others are one
  // register and no sum goes across it.
  void Forward(const ForwardPass& pass) const override {
    const size_t pairs = RowBegin(fields_);
    for (size_t b = 0; b < pass.batch; ++b) {
      const float* v = pass.inputs[0].data() + b * fields_ * dim_;
      float* y = pass.outputs[0].data() + b * pairs;
      for (size_t first = 0; first + 1 - self_ < fields_; first += kColumns) {
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
      size_t begin = 0;
      for (; begin + 2 * kLanes <= dim_; begin += 2 * kLanes) {
        for (size_t top = 0; top < fields_; top += kRows) {
          Gradients<2>(v, dy, top, begin, 2 * kLanes, dv);
        }
      }
      for (; begin < dim_; begin += kLanes) {
        const size_t count = std::min(kLanes, dim_ - begin);
        for (size_t top = 0; top < fields_; top += kRows) {
          Gradients<1>(v, dy, top, begin, count, dv);
        }
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
  static constexpr size_t kColumns = 32;
  static constexpr size_t kDims = 64;
  static constexpr size_t kRows = 4;  // sums that go on side by side

  // Adds the part of kDims floats of the vectors, from `begin` on, to the products with the
  // kColumns vectors from `first` on. Writes only pairs of the triangle.
  void Products(const float* __restrict v, size_t first, size_t begin, float* __restrict y) const {
    const size_t dims = std::min(kDims, dim_ - begin);
    const size_t fields = std::min(kColumns, fields_ - first);
    float columns[kDims * kColumns];
    // The last vector stands in for those beyond it; their products are not used.
    for (size_t j = 0; j < fields; j += kLanes) {
      const float* from[kLanes];
      for (size_t l = 0; l < kLanes; ++l) {
        from[l] = v + std::min(first + j + l, fields_ - 1) * dim_ + begin;
      }
      size_t d = 0;
      for (; d + kLanes <= dims; d += kLanes) {
        Lanes square[kLanes];
        for (size_t l = 0; l < kLanes; ++l) square[l] = LoadLanes(from[l] + d);
        TransposeLanes(square);
        for (size_t l = 0; l < kLanes; ++l) StoreLanes(square[l], columns + (d + l) * kColumns + j);
      }
      for (; d < dims; ++d) {
        for (size_t l = 0; l < kLanes; ++l) columns[d * kColumns + j + l] = from[l][d];
      }
    }
    for (size_t i = first + 1 - self_; i < fields_; ++i) {
      const float* row = v + i * dim_ + begin;
      const size_t count = std::min(i + self_ - first, fields);
      float* to = y + RowBegin(i) + first;
      // A whole register may be written if its rest belongs to pairs that are written later.
      const bool add = begin > 0;
      const size_t room = first > 0 ? count : RowBegin(fields_) - RowBegin(i);
      switch ((count + kLanes - 1) / kLanes) {
        case 1:
          ProductsOfRow<1>(row, columns, dims, count, room, add, to);
          break;
        case 2:
          ProductsOfRow<2>(row, columns, dims, count, room, add, to);
          break;
        case 3:
          ProductsOfRow<3>(row, columns, dims, count, room, add, to);
          break;
        default:
          ProductsOfRow<4>(row, columns, dims, count, room, add, to);
      }
    }
  }

  // to[j] = (to[j] where `add` +) row . column j, j < count; numbers behind it, up to `room`, may
  // be overwritten too.
  template <size_t kRegisters>
  static void ProductsOfRow(const float* __restrict row, const float* __restrict columns,
                            size_t dims, size_t count, size_t room, bool add,
                            float* __restrict to) {
    Lanes sum[kRegisters] = {};
    for (size_t d = 0; d < dims; ++d) {
      for (size_t r = 0; r < kRegisters; ++r) {
        sum[r] += row[d] * LoadLanes(columns + d * kColumns + r * kLanes);
      }
    }
    if (!add && room >= kRegisters * kLanes) {
      for (size_t r = 0; r < kRegisters; ++r) StoreLanes(sum[r], to + r * kLanes);
      return;
    }
    for (size_t j = 0; j < count; ++j) to[j] = (add ? to[j] : 0) + sum[j / kLanes][j % kLanes];
  }
  static_assert(kColumns == 4 * kLanes);

  // Computes floats [begin, begin + count) of dv of the fields from `top` on: kRegisters full
  // registers, or one that may be partly used.
  template <size_t kRegisters>
  void Gradients(const float* __restrict v, const float* __restrict dy, size_t top, size_t begin,
                 size_t count, float* __restrict dv) const {
    const size_t rows = std::min(kRows, fields_ - top);
    Lanes sum[kRows][kRegisters] = {};
    // Adds vector j, times factor(r), to every row r. Loops of fixed length leave the sums in
    // registers.
    const auto add = [&](size_t j, const auto& factor) __attribute__((always_inline)) {
      Lanes from[kRegisters] = {};
      if constexpr (kRegisters > 1) {
        for (size_t l = 0; l < kRegisters; ++l) {
          from[l] = LoadLanes(v + j * dim_ + begin + l * kLanes);
        }
      } else {
        std::memcpy(from, v + j * dim_ + begin, count * sizeof(float));
      }
      for (size_t r = 0; r < kRows; ++r) {
        const float f = factor(r);
        for (size_t l = 0; l < kRegisters; ++l) sum[r][l] += f * from[l];
      }
    };
    // First the fields before these, then these among themselves, then the fields after them.
    const float* before[kRows];
    for (size_t r = 0; r < kRows; ++r) before[r] = dy + RowBegin(std::min(top + r, fields_ - 1));
    for (size_t j = 0; j < top; ++j) {
      add(j, [&](size_t r) { return before[r][j]; });
    }
    for (size_t j = top; j < top + rows; ++j) {
      add(j, [&](size_t r) {
        const size_t i = std::min(top + r, fields_ - 1);
        if (i == j) return self_ == 0 ? 0 : 2 * dy[RowBegin(i) + i];
        return dy[RowBegin(std::max(i, j)) + std::min(i, j)];
      });
    }
    for (size_t j = top + kRows; j < fields_; ++j) {
      const float* after = dy + RowBegin(j) + top;
      add(j, [&](size_t r) { return after[r]; });
    }
    for (size_t r = 0; r < rows; ++r) {
      // With a size that the compiler knows the copy is no call.
      const size_t floats = kRegisters > 1 ? kRegisters * kLanes : count;
      std::memcpy(dv + (top + r) * dim_ + begin, sum[r], floats * sizeof(float));
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

}  // namespace

std::vector<OpEntry> OpsOfDotInteraction() {
  return {{"DotInteraction", "dot_interaction", &NewDotInteraction}};
}

}  // namespace tessera::worker

// The largest or smallest numbers of an axis, and their places. Each number's rank is how many of
// the axis come before it: every two are compared.
#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/read_axes.h"
#include "worker/onnx/reads.h"

namespace tessera::worker {
namespace {

// What comes before what: the largest or the smallest, and of equal ones the first or the last.
struct Order {
  bool largest = true;
  bool last_of_equal = false;
};

Tensor ConstantOf(OnnxNodeReader& r, const Shape& shape, const std::vector<int64_t>& numbers) {
  std::vector<int64_t> dims;
  for (size_t a = 0; a < shape.rank(); ++a) dims.push_back(shape.dim(a));
  return r.Layer("Constant", {}, Options().Set("shape", dims).Set("value", numbers));
}

// 1 where a and b are equal, else 0.
Tensor IsEqual(OnnxNodeReader& r, Tensor a, Tensor b) {
  const Tensor apart = r.Layer("Step", {r.Layer("Abs", {r.Layer("Sub", {a, b})})});
  return r.Layer("Sub", {NumberBeside(r, apart, 1), apart});
}

Tensor SumOverLast(OnnxNodeReader& r, Tensor x) {
  const auto last = static_cast<int64_t>(r.shape(x).rank());
  return r.Layer("ReduceSum", {x},
                 Options().Set("axes", std::vector<int64_t>{last}).Set("keepdims", false));
}

// The first `count` of the numbers along the last axis of a tensor, in order, and their places.
class Ranked {
 public:
  Ranked(OnnxNodeReader& r, Tensor x, Order order, int64_t count) : r_(r) {
    const Shape shape = r.shape(x);
    const int64_t size = shape.last();
    Shape one, row, column;  // [1, ..., 1], [..., 1, size] and [..., size, 1]
    for (size_t a = 0; a + 1 < shape.rank(); ++a) {
      one.Append(1);
      row.Append(shape.dim(a));
    }
    column = row;
    row.Append(1);
    row.Append(size);
    column.Append(size);
    column.Append(1);
    numbers_ = r.Reshaped(x, row);
    const Tensor own = r.Reshaped(x, column);
    const Tensor before = r.Layer("Step", {order.largest ? r.Layer("Sub", {numbers_, own})
                                                         : r.Layer("Sub", {own, numbers_})});
    std::vector<int64_t> wins;  // [own, other]
    for (int64_t i = 0; i < size * size; ++i) {
      const int64_t at = i / size, other = i % size;
      wins.push_back((order.last_of_equal ? other > at : other < at) ? 1 : 0);
    }
    Shape square = one, places = one, counted = one;
    square.Append(size);
    square.Append(size);
    const Tensor equal =
        r.Layer("Mul", {IsEqual(r, numbers_, own), ConstantOf(r, square, std::move(wins))});
    const Tensor rank = r.Reshaped(SumOverLast(r, r.Layer("Add", {before, equal})), row);
    counted.Append(count);
    counted.Append(1);
    is_ = IsEqual(r, rank, ConstantOf(r, counted, Counted(count)));
    places.Append(1);
    places.Append(size);
    places_ = ConstantOf(r, places, Counted(size));
  }

  Tensor Numbers() const {
    return SumOverLast(r_, r_.Layer("Where", {is_, numbers_, NumberBeside(r_, is_, 0)}));
  }
  Tensor Places() const { return SumOverLast(r_, r_.Layer("Mul", {is_, places_})); }

 private:
  static std::vector<int64_t> Counted(int64_t count) {
    std::vector<int64_t> numbers(static_cast<size_t>(count));
    std::iota(numbers.begin(), numbers.end(), 0);
    return numbers;
  }

  OnnxNodeReader& r_;
  Tensor numbers_;  // [..., 1, size]
  Tensor is_;       // [..., count, size]: whether the number is that of the rank
  Tensor places_;   // [1, ..., 1, size]
};

// x with the axis as the last one of its tensor, and of ONNX. UNIMPLEMENTED: `count` numbers do not
// fit it, or there are too many to compare.
absl::StatusOr<OnnxValue> WithAxisLast(OnnxNodeReader& r, OnnxValue x, size_t axis, int64_t count) {
  const std::vector<int64_t> dims = r.DimsOf(x);
  if (count < 1 || count > dims[axis] || NumbersOf(dims) > kMostChosen / dims[axis]) {
    return absl::UnimplementedError(absl::StrCat(
        count, " of each ", dims[axis], " numbers of ", DimsText(dims), ", axis ", axis,
        "; expected one or more, not more than there are, and at most 2^20 comparisons a sample"));
  }
  const auto at = x.axes.begin() + static_cast<int64_t>(axis);
  std::rotate(at, at + 1, x.axes.end());
  r.LastAxis(x, x.axes.size() - 1);
  return x;
}

// Sets an output to x, of WithAxisLast, with its axis back where it was.
void SetBack(OnnxNodeReader& r, OnnxValue x, size_t axis, int output) {
  std::rotate(x.axes.begin() + static_cast<int64_t>(axis), x.axes.end() - 1, x.axes.end());
  r.Set(std::move(x), output);
}

}  // namespace

absl::Status ReadTopK(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  std::vector<int64_t> count = {r.Int("k", 0)};  // before opset 10
  if (r.Has(1)) {
    TESSERA_ASSIGN_OR_RETURN(count, r.IntsIn(1));
  }
  if (count.size() != 1) return absl::InvalidArgumentError("its k is not one number");
  TESSERA_ASSIGN_OR_RETURN(const size_t axis, r.SampleAxis(r.Int("axis", -1), x));
  TESSERA_ASSIGN_OR_RETURN(x, WithAxisLast(r, std::move(x), axis, count[0]));
  const Ranked ranked(r, x.tensor, {.largest = r.Int("largest", 1) != 0}, count[0]);
  OnnxValue places = x;
  if (r.HasOutput(0)) {
    x.tensor = ranked.Numbers();
    SetBack(r, std::move(x), axis, 0);
  }
  if (r.HasOutput(1)) {
    places.tensor = ranked.Places();
    SetBack(r, std::move(places), axis, 1);
  }
  return absl::OkStatus();
}

// ArgMax and ArgMin.
absl::Status ReadArgMax(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  TESSERA_ASSIGN_OR_RETURN(const size_t axis, r.SampleAxis(r.Int("axis", 0), x));
  TESSERA_ASSIGN_OR_RETURN(x, WithAxisLast(r, std::move(x), axis, 1));
  const Ranked ranked(r, x.tensor,
                      {.largest = r.node().op_type() == "ArgMax",
                       .last_of_equal = r.Int("select_last_index", 0) != 0},
                      1);
  x.tensor = ranked.Places();
  if (r.Int("keepdims", 1) != 0) {
    SetBack(r, std::move(x), axis, 0);
    return absl::OkStatus();
  }
  r.DropOnes(x, OnnxValue::Axes(x.axes.back()));
  x.axes.pop_back();
  r.Set(std::move(x));
  return absl::OkStatus();
}

}  // namespace tessera::worker

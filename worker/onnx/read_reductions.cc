// Ops over whole axes: reductions, pooling, softmax.
#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/read_axes.h"
#include "worker/onnx/reads.h"

namespace tessera::worker {
namespace {

using Axes = OnnxValue::Axes;

// The axes of x that the node names, in ONNX's count; each once.
absl::StatusOr<std::vector<size_t>> ReducedAxes(const OnnxNodeReader& r, const OnnxValue& x) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> named, r.IntsOf("axes", 1));
  std::vector<size_t> axes;
  if (named.empty() && x.IsUnbatched()) {
    axes.resize(x.axes.size());
    std::iota(axes.begin(), axes.end(), size_t{0});
    return axes;
  }
  if (named.empty()) {
    return absl::UnimplementedError("it has no axes, so it would reduce over the batch too");
  }
  for (const int64_t axis : named) {
    TESSERA_ASSIGN_OR_RETURN(axes.emplace_back(), r.SampleAxis(axis, x));
  }
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  return axes;
}

// The axes of the tensor that `over` stands for, made neighbours, because the dense graph's ops
// reduce only neighbours: otherwise they move to the end. Empty if all sizes are 1.
std::vector<int64_t> Neighbours(OnnxNodeReader& r, OnnxValue& x, const std::vector<size_t>& over) {
  std::vector<int64_t> axes;
  for (const size_t k : over) axes.insert(axes.end(), x.axes[k].begin(), x.axes[k].end());
  std::sort(axes.begin(), axes.end());
  if (axes.empty() || axes.back() - axes.front() + 1 == static_cast<int64_t>(axes.size())) {
    return axes;
  }
  std::vector<int64_t> perm = {0};
  const auto rank = static_cast<int64_t>(r.shape(x.tensor).rank());
  for (int64_t a = 1; a <= rank; ++a) {
    if (std::count(axes.begin(), axes.end(), a) == 0) perm.push_back(a);
  }
  const auto first = static_cast<int64_t>(perm.size());
  perm.insert(perm.end(), axes.begin(), axes.end());
  x.tensor = r.Layer("Transpose", {x.tensor}, Options().Set("perm", perm));
  for (Axes& group : x.axes) {
    for (int& axis : group) {
      axis = static_cast<int>(std::find(perm.begin(), perm.end(), axis) - perm.begin());
    }
  }
  std::iota(axes.begin(), axes.end(), first);
  return axes;
}

// Removes these axes of the tensor, which have size 1 now, and unless `keep` the axes of ONNX in
// `over`.
void Drop(OnnxNodeReader& r, OnnxValue& x, const std::vector<int64_t>& axes,
          const std::vector<size_t>& over, bool keep) {
  r.DropOnes(x, {axes.begin(), axes.end()});
  for (auto k = over.rbegin(); !keep && k != over.rend(); ++k) {
    x.axes.erase(x.axes.begin() + static_cast<int64_t>(*k));
  }
}

google::protobuf::Struct Over(const std::vector<int64_t>& axes) {
  return Options().Set("axes", axes).Set("keepdims", true);
}

// One of ReduceSum, ReduceMean and ReduceMax of x.
OnnxValue Reduced(OnnxNodeReader& r, absl::string_view op, OnnxValue x,
                  const std::vector<size_t>& over, bool keep) {
  const std::vector<int64_t> axes = Neighbours(r, x, over);
  if (!axes.empty()) x.tensor = r.Layer(op, {x.tensor}, Over(axes));
  Drop(r, x, axes, over, keep);
  return x;
}

// log sum exp(x) = m + log sum exp(z), z = x - m, m the maximum, whose gradients cancel.
class LogSumExp {
 public:
  LogSumExp(OnnxNodeReader& r, Tensor x, const std::vector<int64_t>& axes)
      : r_(r),
        most_(r.Layer("StopGradient", {r.Layer("ReduceMax", {x}, Over(axes))})),
        z_(r.Layer("Sub", {x, most_})),
        log_(r.Layer("Log", {r.Layer("ReduceSum", {r.Layer("Exp", {z_})}, Over(axes))})) {}
  Tensor Sum() const { return r_.Layer("Add", {most_, log_}); }
  // x minus the LogSumExp. The logarithm of a softmax would lose what rounds to 0.
  Tensor LogSoftmax() const { return r_.Layer("Sub", {z_, log_}); }

 private:
  OnnxNodeReader& r_;
  const Tensor most_, z_, log_;
};

absl::Status SetReduced(OnnxNodeReader& r, absl::string_view op, OnnxValue x) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<size_t> over, ReducedAxes(r, x));
  r.Set(Reduced(r, op, std::move(x), over, r.Int("keepdims", 1) != 0));
  return absl::OkStatus();
}

// Makes the axes that a softmax goes over the last one: one axis, or before opset 13 all from it
// on. Returns their sizes.
absl::StatusOr<std::vector<int64_t>> SoftmaxAxis(OnnxNodeReader& r, OnnxValue& x, size_t* axis) {
  TESSERA_ASSIGN_OR_RETURN(*axis, r.SampleAxis(r.Int("axis", r.opset() < 13 ? 1 : -1), x));
  const std::vector<int64_t> dims = r.DimsOf(x);
  if (r.opset() >= 13) {
    (void)r.OneAxis(x, *axis);
    return std::vector<int64_t>{dims[*axis]};
  }
  if (x.batch_axis() > *axis && !x.IsUnbatched()) {
    return absl::UnimplementedError("over the batch too; save with opset 13 or later");
  }
  r.LastAxis(x, *axis);
  return std::vector<int64_t>(dims.begin() + static_cast<int64_t>(*axis), dims.end());
}

}  // namespace

absl::Status ReadReduce(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, r.IntsOf("axes", 1));
  if (axes.empty() && r.Int("noop_with_empty_axes", 0) != 0) {
    r.Set(std::move(x));
    return absl::OkStatus();
  }
  return SetReduced(r, r.node().op_type(), std::move(x));
}

// ReduceProd of known whole numbers, or as products factor by factor.
absl::Status ReadReduceProd(OnnxNodeReader& r) {
  if (AllInts(r)) {
    int64_t product = 1;
    for (const int64_t factor : r.in(0).ints) {
      TESSERA_ASSIGN_OR_RETURN(product, IntProduct(product, factor));
    }
    TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, r.IntsOf("axes", 1));
    const size_t rank = r.in(0).dims.size();
    std::set<int64_t> over;
    for (const int64_t axis : axes)
      over.insert(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
    const bool none = over.empty() && r.Int("noop_with_empty_axes", 0) != 0;
    if (none || (!over.empty() && over.size() < rank)) {
      return absl::UnimplementedError("of known whole numbers along some of their axes");
    }
    OnnxValue one = OnnxValue::OfInts({product});
    one.dims.assign(r.Int("keepdims", 1) == 0 ? 0 : rank, 1);
    r.Set(std::move(one));
    return absl::OkStatus();
  }
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<size_t> over, ReducedAxes(r, x));
  if (over.size() != 1) return absl::UnimplementedError("over several axes");
  const int axis = r.OneAxis(x, over[0]);
  const int64_t size = r.DimsOf(x)[over[0]];
  if (size > 64) return absl::UnimplementedError(absl::StrCat("of ", size, " factors, above 64"));
  Tensor product;
  for (int64_t i = 0; i < size; ++i) {
    const Tensor factor = Sliced(r, x.tensor, axis, i, i + 1);
    product = i == 0 ? factor : r.Layer("Mul", {product, factor});
  }
  x.tensor = product;
  Drop(r, x, {axis}, over, r.Int("keepdims", 1) != 0);
  r.Set(std::move(x));
  return absl::OkStatus();
}

// Reductions that are a sum or a maximum of a function of x.
absl::Status ReadReduceComposed(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  const std::string& op = r.node().op_type();
  const auto negative = [&](Tensor t) { return r.Layer("Mul", {t, NumberBeside(r, t, -1)}); };
  const auto after = [&](const auto& make) {
    OnnxValue y = r.out();
    y.tensor = make(y.tensor);
    r.Set(std::move(y));
    return absl::OkStatus();
  };
  if (op == "ReduceMin") {
    x.tensor = negative(x.tensor);
    TESSERA_RETURN_IF_ERROR(SetReduced(r, "ReduceMax", std::move(x)));
    return after(negative);
  }
  if (op == "ReduceLogSumExp") {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<size_t> over, ReducedAxes(r, x));
    const std::vector<int64_t> axes = Neighbours(r, x, over);
    if (!axes.empty()) x.tensor = LogSumExp(r, x.tensor, axes).Sum();
    Drop(r, x, axes, over, r.Int("keepdims", 1) != 0);
    r.Set(std::move(x));
    return absl::OkStatus();
  }
  if (op == "ReduceL1") x.tensor = r.Layer("Abs", {x.tensor});
  if (op == "ReduceL2" || op == "ReduceSumSquare") x.tensor = r.Layer("Mul", {x.tensor, x.tensor});
  TESSERA_RETURN_IF_ERROR(SetReduced(r, "ReduceSum", std::move(x)));
  if (op == "ReduceL2") return after([&](Tensor t) { return r.Layer("Sqrt", {t}); });
  if (op == "ReduceLogSum") return after([&](Tensor t) { return r.Layer("Log", {t}); });
  return absl::OkStatus();
}

// Pools over all axes after the channels.
absl::Status ReadGlobalPool(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  std::vector<size_t> over;
  for (size_t k = 2; k < x.axes.size(); ++k) {
    TESSERA_ASSIGN_OR_RETURN(over.emplace_back(), r.SampleAxis(static_cast<int64_t>(k), x));
  }
  const char* const op = r.node().op_type() == "GlobalMaxPool" ? "ReduceMax" : "ReduceMean";
  r.Set(Reduced(r, op, std::move(x), over, /*keep=*/true));
  return absl::OkStatus();
}

// Softmax and LogSoftmax.
absl::Status ReadSoftmax(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  size_t axis = 0;
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, SoftmaxAxis(r, x, &axis));
  const int at = x.axes[axis][0];
  x.tensor = r.node().op_type() == "LogSoftmax"
                 ? LogSumExp(r, x.tensor, {at}).LogSoftmax()
                 : r.Layer("Softmax", {x.tensor}, Options().Set("axis", static_cast<double>(at)));
  if (r.opset() < 13) r.SplitLast(x, axis, sizes);
  r.Set(std::move(x));
  return absl::OkStatus();
}

}  // namespace tessera::worker

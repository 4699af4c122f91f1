// Products: with weights a linear layer, else MatMul over tensors of the network.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/read_axes.h"
#include "worker/onnx/reads.h"

namespace tessera::worker {
namespace {

using Kind = OnnxValue::Kind;

// w [in, units] transposed to the dense graph's [units, in].
std::vector<float> Turned(const std::vector<float>& w, int64_t in, int64_t units, bool turned) {
  std::vector<float> out(w.size());
  for (int64_t i = 0; i < in; ++i) {
    for (int64_t k = 0; k < units; ++k) {
      out[k * in + i] = turned ? w[k * in + i] : w[i * units + k];
    }
  }
  return out;
}

struct LinearForm {
  size_t weights = 1;   // the input that has them, a matrix or a vector
  bool turned = false;  // [units, in] instead of [in, units]
  bool bias = false;    // input 2
};

// x W (+ b) over the last axis of ONNX, which is then the last of the tensor: a layer with the
// weights that the file has. A vector of weights is a matrix of one column.
absl::StatusOr<OnnxValue> Linear(OnnxNodeReader& r, OnnxValue x, const LinearForm& form) {
  const size_t axis = x.axes.size() - 1;
  TESSERA_RETURN_IF_ERROR(r.SampleAxis(static_cast<int64_t>(axis), x).status());
  TESSERA_ASSIGN_OR_RETURN(const std::vector<float> weights, r.FloatsIn(form.weights));
  std::vector<int64_t> dims = r.in(form.weights).dims;
  if (dims.size() == 1) dims.push_back(1);
  if (dims.size() != 2) {
    return absl::UnimplementedError(
        absl::StrCat("its weights have ", dims.size(), " dimensions; expected a matrix"));
  }
  const int64_t in = dims[form.turned ? 1 : 0], units = dims[form.turned ? 0 : 1];
  const std::vector<int64_t> found = r.DimsOf(x);
  if (in != found.back() || units < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("its weights ", DimsText(dims), " do not fit the input ", DimsText(found)));
  }
  std::vector<OnnxNodeReader::Weight> trained;
  trained.push_back({"weight", form.weights, Turned(weights, in, units, form.turned),
                     form.turned ? "turned" : ""});
  if (form.bias) {
    TESSERA_ASSIGN_OR_RETURN(std::vector<float> start, r.FloatsIn(2));
    if (start.size() != static_cast<size_t>(units)) {
      return absl::InvalidArgumentError(
          absl::StrCat("its bias has ", start.size(), " numbers, expected ", units));
    }
    trained.push_back({"bias", 2, std::move(start)});
  }
  r.LastAxis(x, axis);
  TESSERA_ASSIGN_OR_RETURN(
      x.tensor,
      r.TrainedLayer("Gemm", {x.tensor},
                     Options().Set("units", static_cast<double>(units)).Set("bias", form.bias),
                     std::move(trained)));
  return x;
}

// x W, or x W turned, over the last axis of ONNX where W, a matrix or a vector, has no batch: every
// sample's rows with its own copy of W.
enum class WeightForm { kAsIs, kTurned };
absl::StatusOr<OnnxValue> TimesUnbatched(OnnxNodeReader& r, OnnxValue x, OnnxValue w,
                                         WeightForm form) {
  const std::vector<int64_t> found = r.DimsOf(x), dims = r.DimsOf(w);
  const size_t axis = x.axes.size() - 1;
  TESSERA_RETURN_IF_ERROR(r.SampleAxis(static_cast<int64_t>(axis), x).status());
  const bool vector = w.axes.size() == 1;
  if (vector) w.axes.emplace_back();
  if (form == WeightForm::kTurned) std::swap(w.axes[0], w.axes[1]);
  const Tensor right = r.Arranged(w, w.axes);
  if (r.shape(right).dim(0) != found.back()) {
    return absl::InvalidArgumentError(
        absl::StrCat("its weights ", DimsText(dims), " do not fit the input ", DimsText(found)));
  }
  r.LastAxis(x, axis);
  Shape to = r.shape(x.tensor);
  const int64_t in = found.back();
  const Tensor left = r.Reshaped(x.tensor, {static_cast<int64_t>(to.floats()) / in, in});
  to.set_dim(to.rank() - 1, r.shape(right).dim(1));
  x.tensor = r.Reshaped(r.Layer("MatMul", {left, right}), to);
  if (vector) {
    r.DropOnes(x, OnnxValue::Axes(x.axes.back()));
    x.axes.pop_back();
  }
  return x;
}

// An operand of MatMul: the axes of its tensor before the matrices' two, those beside the batch
// apart from it, then the two.
struct Stack {
  std::vector<OnnxValue::Axes> parts;
  std::vector<OnnxValue::Axes> axes;  // what the first of them make of ONNX's
};

Stack StackOf(const OnnxNodeReader& r, const OnnxValue& value, size_t rank) {
  Stack stack;
  stack.axes.resize(rank - value.axes.size());
  OnnxValue::Axes ones;
  for (size_t k = 0; k + 2 < value.axes.size(); ++k) {
    OnnxValue::Axes& to = stack.axes.emplace_back();
    bool begins = true;
    for (const int axis : value.axes[k]) {
      if (axis == 0) {
        to.push_back(0);
        begins = true;
      } else if (r.SizeOf(value, {axis}) == 1) {
        ones.push_back(axis);
      } else {
        if (begins) stack.parts.emplace_back();
        if (begins) to.push_back(static_cast<int>(stack.parts.size()));
        stack.parts.back().push_back(axis);
        begins = false;
      }
    }
  }
  stack.parts.insert(stack.parts.end(), value.axes.end() - 2, value.axes.end());
  OnnxValue::Axes& rows = stack.parts[stack.parts.size() - 2];
  rows.insert(rows.end(), ones.begin(), ones.end());
  return stack;
}

// Matrices that all samples share, constants or computed from parameters alone, beside `stack`.
absl::StatusOr<Tensor> ConstantStack(OnnxNodeReader& r, const OnnxValue& b, const Stack& stack,
                                     size_t rank, const Shape& other) {
  const std::vector<int64_t> dims = r.DimsOf(b);
  std::vector<int64_t> to(stack.parts.size() - 2, 1);
  bool fits = true;
  for (size_t k = 0; k + 2 < dims.size(); ++k) {
    const OnnxValue::Axes& axes = stack.axes[k + rank - dims.size()];
    const bool one = axes.size() == 1 && axes[0] > 0;
    if (one) to[static_cast<size_t>(axes[0]) - 1] = dims[k];
    fits &= one || dims[k] == 1;
  }
  for (size_t p = 0; p < to.size(); ++p) fits &= to[p] == other.dim(p);
  if (!fits) {
    return absl::UnimplementedError(absl::StrCat("the matrices ", DimsText(dims), " beside ",
                                                 other.ToString(), "; expected as many of each"));
  }
  to.insert(to.end(), dims.end() - 2, dims.end());
  if (!r.IsTensor(1)) return r.Materialize(1, to);
  Shape shape;
  for (const int64_t dim : to) shape.Append(dim);
  return r.Reshaped(r.Arranged(b, b.axes), shape);
}

// MatMul if both are tensors of the network, or b is a stack of matrices that all samples share:
// constants, or computed from parameters alone.
absl::StatusOr<OnnxValue> MatMulOfTensors(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(OnnxValue a, r.TensorIn(0));
  const OnnxValue& b = r.in(1);
  const bool constant = !r.IsTensor(1) || b.IsUnbatched();
  // [fields, batch, k] times [fields, k, n]: each sample has a row, with a matrix for each field.
  const bool rows = constant && a.axes.size() >= 3 && r.DimsOf(b).size() <= a.axes.size() &&
                    a.axes[a.axes.size() - 2] == OnnxValue::Axes{0};
  if (rows) {
    a.axes.insert(a.axes.begin(), OnnxValue::Axes{0});
    a.axes[a.axes.size() - 2].clear();
  }
  const std::vector<int64_t> dims_a = r.DimsOf(a), dims_b = r.DimsOf(b);
  const size_t rank = std::max(dims_a.size(), dims_b.size());
  const std::string what = absl::StrCat(DimsText(dims_a), " times ", DimsText(dims_b));
  if (std::min(dims_a.size(), dims_b.size()) < 2) {
    return absl::UnimplementedError(absl::StrCat(what, "; expected two axes or more"));
  }
  const auto batch_of = [rank](const OnnxValue& x) {
    return x.batch_axis() + rank - x.axes.size();
  };
  if (batch_of(a) + 2 >= rank || (!constant && batch_of(b) != batch_of(a))) {
    return absl::UnimplementedError(absl::StrCat(what, ": that would mix samples"));
  }
  const Stack stack = StackOf(r, a, rank);
  const Tensor left = r.Arranged(a, stack.parts);
  Tensor right;
  if (constant) {
    TESSERA_ASSIGN_OR_RETURN(right, ConstantStack(r, b, stack, rank, r.shape(left)));
  } else {
    const Stack other = StackOf(r, b, rank);
    if (other.axes != stack.axes) {
      return absl::UnimplementedError(
          absl::StrCat(what, "; expected the same sizes before the last two axes"));
    }
    right = r.Arranged(b, other.parts);
  }
  OnnxValue result;
  result.axes = stack.axes;
  const auto last = static_cast<int>(stack.parts.size());
  result.axes.push_back({last - 1});
  result.axes.push_back({last});
  result.tensor = r.Layer("MatMul", {left, right});
  if (rows) {
    result.axes[result.axes.size() - 2] = {0, last - 1};  // which is of size 1
    result.axes.erase(result.axes.begin());
  }
  return result;
}

// x W + b where W, b or both are tensors without the batch.
absl::StatusOr<OnnxValue> GemmOfTensors(OnnxNodeReader& r, OnnxValue x) {
  if (r.Float("alpha", 1) != 1 || r.Float("beta", 1) != 1 || r.Int("transA", 0) != 0) {
    return absl::UnimplementedError("alpha, beta or transA of weights that are computed");
  }
  const bool turned = r.Int("transB", 0) != 0;
  TESSERA_ASSIGN_OR_RETURN(
      OnnxValue y, r.IsTensor(1) ? TimesUnbatched(r, std::move(x), r.in(1),
                                                  turned ? WeightForm::kTurned : WeightForm::kAsIs)
                                 : Linear(r, std::move(x), {.turned = turned}));
  if (!r.Has(2)) return y;
  r.LastAxis(y, y.axes.size() - 1);
  const std::vector<int64_t> dims = r.DimsOf(r.in(2));
  const int64_t units = r.DimsOf(y).back();
  if (dims != std::vector<int64_t>{units}) {
    return absl::UnimplementedError(
        absl::StrCat("its bias is ", DimsText(dims), ", expected ", DimsText({units})));
  }
  if (!r.IsTensor(2)) {
    TESSERA_ASSIGN_OR_RETURN(std::vector<float> bias, r.FloatsIn(2));
    TESSERA_ASSIGN_OR_RETURN(
        y.tensor, r.TrainedLayer("Bias", {y.tensor}, {}, {{"bias", 2, std::move(bias)}}));
    return y;
  }
  Shape beside;
  for (size_t k = 0; k + 1 < r.shape(y.tensor).rank(); ++k) beside.Append(1);
  beside.Append(units);
  y.tensor = r.Layer("Add", {y.tensor, r.Reshaped(r.in(2).tensor, beside)});
  return y;
}

// y + beta C if C is computed from samples.
absl::StatusOr<OnnxValue> WithSummand(OnnxNodeReader& r, const OnnxValue& y) {
  const std::vector<int64_t> dims = r.DimsOf(r.in(2)), of_y = r.DimsOf(y);
  const bool fits = of_y[0] == BatchTimes(1) && dims.size() == 2 && dims[0] == of_y[0] &&
                    (dims[1] == 1 || dims[1] == of_y[1]);
  if (!fits) {
    return absl::UnimplementedError(
        absl::StrCat("its summand is ", DimsText(dims), ", expected ", DimsText(of_y)));
  }
  Tensor summand = r.Flat(r.in(2));
  if (const float beta = r.Float("beta", 1); beta != 1) {
    summand = r.Layer("Mul", {summand, NumberBeside(r, summand, static_cast<double>(beta))});
  }
  return OnnxValue::Of(r.Layer("Add", {r.Flat(y), summand}), 1);
}

}  // namespace

absl::Status ReadGemm(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  const auto unbatched = [&](size_t i) { return r.IsTensor(i) && r.in(i).IsUnbatched(); };
  const bool matrices = x.axes.size() == 2 && r.DimsOf(r.in(1)).size() == 2;
  if (matrices && (unbatched(1) || unbatched(2))) {
    TESSERA_ASSIGN_OR_RETURN(OnnxValue y, GemmOfTensors(r, std::move(x)));
    r.Set(std::move(y));
    return absl::OkStatus();
  }
  if (x.axes.size() != 2 || r.in(1).kind != Kind::kFloats) {
    return absl::UnimplementedError("expected an input of two axes and constant weights");
  }
  if (r.Int("transA", 0) != 0) std::swap(x.axes[0], x.axes[1]);
  const bool turned = r.Int("transB", 0) != 0;
  const float alpha = r.Float("alpha", 1), beta = r.Float("beta", 1);
  const auto scaled = [&](Tensor t, float factor) {
    return factor == 1 ? t : r.Layer("Mul", {t, NumberBeside(r, t, static_cast<double>(factor))});
  };
  // A bias that is scaled, or one number for all, stands behind the layer.
  const bool bias = r.Has(2) && !r.IsTensor(2);
  const bool within = bias && alpha == 1 && beta == 1 &&
                      (r.in(2).floats.size() != 1 || r.DimsOf(r.in(1))[turned ? 0 : 1] == 1);
  TESSERA_ASSIGN_OR_RETURN(x, Linear(r, std::move(x), {.turned = turned, .bias = within}));
  x.tensor = scaled(x.tensor, alpha);
  if (r.IsTensor(2)) {
    TESSERA_ASSIGN_OR_RETURN(x, WithSummand(r, x));
  } else if (bias && !within) {
    TESSERA_ASSIGN_OR_RETURN(const Tensor behind, r.OfLast(2, r.shape(x.tensor)));
    x.tensor = r.Layer("Add", {x.tensor, scaled(behind, beta)});
  }
  r.Set(std::move(x));
  return absl::OkStatus();
}

absl::Status ReadMatMul(OnnxNodeReader& r) {
  for (const size_t i : {0, 1}) {
    if (r.in(i).HasBatch()) TESSERA_RETURN_IF_ERROR(r.TensorIn(i).status());
  }
  if (r.IsTensor(0) && r.in(1).kind == Kind::kFloats && r.in(1).dims.size() == 2) {
    TESSERA_ASSIGN_OR_RETURN(OnnxValue x, Linear(r, r.in(0), {}));
    r.Set(std::move(x));
    return absl::OkStatus();
  }
  if (r.IsTensor(0) && r.in(1).kind == Kind::kFloats && r.in(1).dims.size() == 1) {
    TESSERA_ASSIGN_OR_RETURN(OnnxValue x, Linear(r, r.in(0), {}));
    r.DropOnes(x, OnnxValue::Axes(x.axes.back()));
    x.axes.pop_back();
    r.Set(std::move(x));
    return absl::OkStatus();
  }
  // W x is x^T W^T, turned; of a vector of weights a row is left.
  const size_t left_axes = r.in(0).dims.size();
  if (r.in(0).kind == Kind::kFloats && r.IsTensor(1) && (left_axes == 1 || left_axes == 2) &&
      r.in(1).axes.size() >= 2) {
    OnnxValue x = r.in(1);
    const size_t last = x.axes.size() - 1;
    std::swap(x.axes[last - 1], x.axes[last]);
    TESSERA_ASSIGN_OR_RETURN(x, Linear(r, std::move(x), {.weights = 0, .turned = left_axes == 2}));
    std::swap(x.axes[last - 1], x.axes[last]);
    if (left_axes == 1) {
      r.DropOnes(x, OnnxValue::Axes(x.axes[last - 1]));
      x.axes.erase(x.axes.begin() + static_cast<int64_t>(last) - 1);
    }
    r.Set(std::move(x));
    return absl::OkStatus();
  }
  const auto unbatched = [&](size_t i, size_t most) {
    return r.IsTensor(i) && r.in(i).IsUnbatched() && r.in(i).axes.size() <= most;
  };
  if (r.IsTensor(0) && unbatched(1, 2) && !r.in(1).axes.empty()) {
    TESSERA_ASSIGN_OR_RETURN(OnnxValue y, TimesUnbatched(r, r.in(0), r.in(1), WeightForm::kAsIs));
    r.Set(std::move(y));
    return absl::OkStatus();
  }
  if (unbatched(0, 2) && r.in(0).axes.size() == 2 && r.IsTensor(1) && r.in(1).axes.size() >= 2) {
    OnnxValue y = r.in(1);
    const size_t last = y.axes.size() - 1;
    std::swap(y.axes[last - 1], y.axes[last]);
    TESSERA_ASSIGN_OR_RETURN(y, TimesUnbatched(r, std::move(y), r.in(0), WeightForm::kTurned));
    std::swap(y.axes[last - 1], y.axes[last]);
    r.Set(std::move(y));
    return absl::OkStatus();
  }
  const bool left = r.IsTensor(1) && !r.in(1).IsUnbatched() &&
                    (r.IsTensor(0) ? r.in(0).IsUnbatched() : r.in(0).dims.size() > 2);
  const bool stack = left || (r.IsTensor(0) && r.in(1).trained && r.in(1).dims.size() > 2);
  TESSERA_ASSIGN_OR_RETURN(OnnxValue y, stack ? TimesStack(r) : MatMulOfTensors(r));
  r.Set(std::move(y));
  return absl::OkStatus();
}

}  // namespace tessera::worker

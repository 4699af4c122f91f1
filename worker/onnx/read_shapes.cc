// Ops that move numbers, and the arithmetic of shapes that exporters leave in a file: what a
// network computes of sizes alone is computed here, with the batch as a number of its own.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "worker/onnx/read.h"

namespace tessera::worker {
namespace {

using Kind = OnnxValue::Kind;

// An index of a list of this size, counted from its end where negative; kept within [0, size].
int64_t Within(int64_t index, int64_t size) {
  if (index < 0) index = index < -size ? 0 : index + size;
  return std::min(index, size);
}

std::string DimsText(const std::vector<int64_t>& dims) {
  return absl::StrCat(
      "[",
      absl::StrJoin(dims, ", ",
                    [](std::string* out, int64_t dim) {
                      absl::StrAppend(out, dim == OnnxValue::kBatch ? "batch" : absl::StrCat(dim));
                    }),
      "]");
}

// Sets the tensor under the shape of a sample, where no dimension is left as [batch].
void SetShaped(OnnxNodeReader& r, Tensor x, const Shape& shape) {
  const bool flat = shape.rank() == 0;
  r.Set(OnnxValue::Of(r.Reshaped(x, flat ? Shape{1} : shape), flat));
}

// The sample shape that this list of dimensions means for x.
absl::StatusOr<Shape> SampleShape(std::vector<int64_t> dims, const Shape& x) {
  const auto total = static_cast<int64_t>(x.floats());
  if (dims.empty()) return absl::UnimplementedError("its shape has no batch");
  // Whatever stands first must come to the batch.
  const bool open_batch = dims[0] == -1;
  const bool batch = dims[0] == 0 || dims[0] == OnnxValue::kBatch;
  Shape shape;
  int64_t known = 1, open = -1;
  for (size_t i = 1; i < dims.size(); ++i) {
    int64_t dim = dims[i];
    if (dim == 0 && i <= x.rank()) dim = x.dim(i - 1);
    if (dim == -1 && open < 0 && !open_batch) open = static_cast<int64_t>(i) - 1;
    if (dim < -1 || dim == 0) return absl::UnimplementedError("its shape " + DimsText(dims));
    shape.Append(std::max<int64_t>(dim, 1));
    if (dim > 0) known = known > total || dim > total ? total + 1 : known * dim;
  }
  if (open >= 0 && total % known == 0) shape.set_dim(static_cast<size_t>(open), total / known);
  const bool fits = open >= 0 ? total % known == 0 : known == total;
  if ((batch || open_batch) && fits) return shape;
  return absl::UnimplementedError(absl::StrCat("the shape ", DimsText(dims), " for ", x.ToString(),
                                               ": expected the batch first and ", total,
                                               " numbers a sample after it"));
}

// Sets x with its axes of 1 repeated to `dims`, which has the batch first.
absl::Status Repeat(OnnxNodeReader& r, Tensor x, const std::vector<int64_t>& dims) {
  for (size_t i = 1; i < dims.size(); ++i) {
    if (r.shape(x).rank() + 1 != dims.size()) return absl::InternalError("it has another rank");
    const int64_t from = r.shape(x).dim(i - 1);
    if (dims[i] == from || dims[i] == 1) continue;
    if (from != 1 || dims[i] < 1 || dims[i] > 1 << 20) {
      return absl::UnimplementedError("to " + DimsText(dims) + " from " + r.shape(x).ToString());
    }
    const std::vector<int64_t> again(static_cast<size_t>(dims[i]), 0);
    x = r.Layer("Gather", {x}, Options().Set("indices", again).Set("axis", static_cast<double>(i)));
  }
  r.Set(x);
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadConstant(OnnxNodeReader& r) {
  const onnx::AttributeProto* value = r.Attribute("value");
  if (value != nullptr) {
    TESSERA_ASSIGN_OR_RETURN(OnnxValue known, ValueOfTensor(value->t()));
    r.Set(std::move(known));
    return absl::OkStatus();
  }
  if (const auto* number = r.Attribute("value_float"); number != nullptr) {
    OnnxValue known;
    known.kind = Kind::kFloats;
    known.floats = {number->f()};
    r.Set(std::move(known));
    return absl::OkStatus();
  }
  OnnxValue known;
  if (const auto* numbers = r.Attribute("value_ints"); numbers != nullptr) {
    known = OnnxValue::OfInts({numbers->ints().begin(), numbers->ints().end()});
  } else if (const auto* number = r.Attribute("value_int"); number != nullptr) {
    known = OnnxValue::OfInts({number->i()});
    known.dims.clear();
  } else {
    return absl::UnimplementedError("expected a tensor or numbers as its value");
  }
  r.Set(std::move(known));
  return absl::OkStatus();
}

absl::Status ReadIdentity(OnnxNodeReader& r) {
  if (!r.Has(0)) return absl::InvalidArgumentError("input 0 is missing");
  r.Set(OnnxValue(r.in(0)));
  return absl::OkStatus();
}

// Of what is float32 already, or of whole numbers.
absl::Status ReadCast(OnnxNodeReader& r) {
  if (!r.Has(0)) return absl::InvalidArgumentError("input 0 is missing");
  const int64_t to = r.Int("to", 0);
  const bool to_float = to == onnx::TensorProto::FLOAT || to == onnx::TensorProto::DOUBLE;
  const bool to_int = to == onnx::TensorProto::INT64 || to == onnx::TensorProto::INT32;
  OnnxValue value = r.in(0);
  if (to_float && value.kind == Kind::kInts) {
    if (std::count(value.ints.begin(), value.ints.end(), OnnxValue::kBatch) > 0) {
      return absl::UnimplementedError("the batch's size as a number of the network");
    }
    value.kind = Kind::kFloats;
    value.floats.assign(value.ints.begin(), value.ints.end());
    value.ints.clear();
  } else if (to_float ? value.kind == Kind::kInts : !(to_int && value.kind == Kind::kInts)) {
    return absl::UnimplementedError("a cast of numbers to whole ones");
  }
  r.Set(std::move(value));
  return absl::OkStatus();
}

absl::Status ReadShape(OnnxNodeReader& r) {
  std::vector<int64_t> dims;
  if (!r.Has(0)) return absl::InvalidArgumentError("input 0 is missing");
  if (r.in(0).kind == Kind::kTensor) {
    const Shape& shape = r.shape(r.in(0).tensor);
    for (size_t i = 0; !r.in(0).flat && i < shape.rank(); ++i) dims.push_back(shape.dim(i));
    dims.insert(r.in(0).batch_last ? dims.end() : dims.begin(), OnnxValue::kBatch);
  } else {
    dims = r.in(0).dims;
  }
  const auto size = static_cast<int64_t>(dims.size());
  const int64_t begin = Within(r.Int("start", 0), size), end = Within(r.Int("end", size), size);
  r.Set(OnnxValue::OfInts({dims.begin() + begin, dims.begin() + std::max(begin, end)}));
  return absl::OkStatus();
}

absl::Status ReadConcat(OnnxNodeReader& r) {
  size_t tensors = 0, ints = 0;
  for (size_t i = 0; i < r.inputs(); ++i) {
    tensors += r.in(i).kind == Kind::kTensor;
    ints += r.in(i).kind == Kind::kInts;
  }
  if (ints == r.inputs()) {
    std::vector<int64_t> all;
    for (size_t i = 0; i < r.inputs(); ++i) {
      all.insert(all.end(), r.in(i).ints.begin(), r.in(i).ints.end());
    }
    r.Set(OnnxValue::OfInts(std::move(all)));
    return absl::OkStatus();
  }
  if (tensors != r.inputs()) {
    return absl::UnimplementedError("expected tensors of the network alone");
  }
  std::vector<Tensor> parts;
  for (size_t i = 0; i < r.inputs(); ++i) {
    TESSERA_ASSIGN_OR_RETURN(parts.emplace_back(), r.TensorIn(i));
  }
  TESSERA_ASSIGN_OR_RETURN(const int64_t axis, r.Axis(r.Int("axis", 0), r.shape(parts[0])));
  r.Set(r.Layer("Concat", parts, Options().Set("axis", static_cast<double>(axis))));
  return absl::OkStatus();
}

absl::Status ReadFlatten(OnnxNodeReader& r) {
  OnnxValue x = r.in(0);
  // Where the batch stands last, all axes before it become one.
  if (!x.batch_last) TESSERA_RETURN_IF_ERROR(r.TensorIn(0).status());
  const auto rank = static_cast<int64_t>(r.shape(x.tensor).rank());
  const int64_t expected = x.batch_last ? rank : 1;
  if (const int64_t axis = r.Int("axis", 1); axis != expected && axis != expected - rank - 1) {
    return absl::UnimplementedError(absl::StrCat("axis ", axis, "; expected ", expected));
  }
  x.tensor = r.Reshaped(x.tensor, Shape{static_cast<int64_t>(r.shape(x.tensor).floats())});
  r.Set(std::move(x));
  return absl::OkStatus();
}

absl::Status ReadReshape(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(std::vector<int64_t> dims, r.IntsOf("shape", 1));
  if (r.in(0).kind == Kind::kInts) {  // a list stays a list
    r.Set(OnnxValue::OfInts(r.in(0).ints));
    return absl::OkStatus();
  }
  if (r.in(0).kind != Kind::kTensor) return r.TensorIn(0).status();
  const Tensor x = r.in(0).tensor;
  if (r.in(0).batch_last) {
    if (dims.back() == OnnxValue::kBatch) {
      std::rotate(dims.begin(), dims.end() - 1, dims.end());
      TESSERA_ASSIGN_OR_RETURN(const Shape shape, SampleShape(dims, r.shape(x)));
      OnnxValue y = r.in(0);
      y.tensor = r.Reshaped(x, shape);
      r.Set(std::move(y));
      return absl::OkStatus();
    }
    return r.TensorIn(0).status();
  }
  TESSERA_ASSIGN_OR_RETURN(const Shape shape, SampleShape(dims, r.shape(x)));
  SetShaped(r, x, shape);
  return absl::OkStatus();
}

absl::Status ReadUnsqueeze(OnnxNodeReader& r) {
  if (r.Has(0) && r.in(0).kind != Kind::kTensor) {
    OnnxValue value = r.in(0);
    if (value.dims.empty()) value.dims = {1};
    if (value.kind == Kind::kFloats) {
      return absl::UnimplementedError("of a constant; expected a tensor of the network");
    }
    r.Set(std::move(value));
    return absl::OkStatus();
  }
  if (!r.Has(0)) return absl::InvalidArgumentError("input 0 is missing");
  TESSERA_ASSIGN_OR_RETURN(std::vector<int64_t> axes, r.IntsOf("axes", 1));
  const Shape from = r.in(0).flat ? Shape() : r.shape(r.in(0).tensor);
  const auto rank = static_cast<int64_t>(from.rank() + 1 + axes.size());
  for (int64_t& axis : axes) axis = axis < 0 ? axis + rank : axis;
  Shape to;
  size_t next = 0;
  for (int64_t axis = 1; axis < rank; ++axis) {
    const bool added = std::count(axes.begin(), axes.end(), axis) > 0;
    if (!added && next == from.rank()) break;
    to.Append(added ? 1 : from.dim(next++));
  }
  if (to.rank() != from.rank() + axes.size()) {
    return absl::UnimplementedError("the axes " + DimsText(axes) + " of " + from.ToString());
  }
  SetShaped(r, r.in(0).tensor, to);
  return absl::OkStatus();
}

absl::Status ReadSqueeze(OnnxNodeReader& r) {
  if (r.Has(0) && r.in(0).kind == Kind::kInts) {
    OnnxValue value = r.in(0);
    value.dims.clear();
    r.Set(std::move(value));
    return absl::OkStatus();
  }
  TESSERA_ASSIGN_OR_RETURN(const Tensor x, r.TensorIn(0));
  TESSERA_ASSIGN_OR_RETURN(std::vector<int64_t> axes, r.IntsOf("axes", 1));
  const Shape from = r.shape(x);
  if (axes.empty()) return absl::UnimplementedError("without axes it may take the batch's too");
  for (int64_t& axis : axes) {
    TESSERA_ASSIGN_OR_RETURN(axis, r.Axis(axis, from));
  }
  Shape to;
  for (size_t i = 0; i < from.rank(); ++i) {
    const bool gone = std::count(axes.begin(), axes.end(), static_cast<int64_t>(i) + 1) > 0;
    if (!gone) to.Append(from.dim(i));
    if (gone && from.dim(i) != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("axis ", i + 1, " of ", from.ToString(), " is not 1"));
    }
  }
  SetShaped(r, x, to);
  return absl::OkStatus();
}

// The batch stays first, moves to the end, as advanced indexing of PyTorch has it, or comes back.
absl::Status ReadTranspose(OnnxNodeReader& r) {
  OnnxValue x = r.in(0);
  if (!x.batch_last) TESSERA_RETURN_IF_ERROR(r.TensorIn(0).status());
  TESSERA_ASSIGN_OR_RETURN(std::vector<int64_t> perm, r.IntsOf("perm", SIZE_MAX));
  const auto rank = static_cast<int64_t>(r.shape(x.tensor).rank());
  if (static_cast<int64_t>(perm.size()) != rank + 1) {
    return absl::UnimplementedError("expected perm, with the place of the batch");
  }
  // As a permutation of axes that count the batch as 0.
  const int64_t batch = x.batch_last ? rank : 0;
  for (int64_t& axis : perm) axis = axis == batch ? 0 : x.batch_last ? axis + 1 : axis;
  x.batch_last = perm[0] != 0;
  if (x.batch_last && perm.back() == 0) std::rotate(perm.begin(), perm.end() - 1, perm.end());
  x.tensor = r.Layer("Transpose", {x.tensor}, Options().Set("perm", perm));
  r.Set(std::move(x));
  return absl::OkStatus();
}

absl::Status ReadGather(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(std::vector<int64_t> indices, r.IntsIn(1));
  const bool one = r.in(1).dims.empty();
  if (r.in(1).dims.size() > 1) return absl::UnimplementedError("indices of several dimensions");
  if (r.Has(0) && r.in(0).kind == Kind::kInts) {
    const std::vector<int64_t>& all = r.in(0).ints;
    const auto size = static_cast<int64_t>(all.size());
    std::vector<int64_t> taken;
    for (const int64_t index : indices) {
      if (index < -size || index >= size) {
        return absl::InvalidArgumentError(absl::StrCat("index ", index, " of ", size));
      }
      taken.push_back(all[static_cast<size_t>(index < 0 ? index + size : index)]);
    }
    OnnxValue value = OnnxValue::OfInts(std::move(taken));
    if (one) value.dims.clear();
    r.Set(std::move(value));
    return absl::OkStatus();
  }
  OnnxValue x = r.in(0);
  int64_t axis = r.Int("axis", 0);
  if (!x.batch_last) {
    TESSERA_RETURN_IF_ERROR(r.TensorIn(0).status());
  } else if (axis < 0 || one) {
    return r.TensorIn(0).status();
  } else {
    ++axis;
  }
  const Shape from = r.shape(x.tensor);
  TESSERA_ASSIGN_OR_RETURN(axis, r.Axis(axis, from));
  const auto at = static_cast<size_t>(axis - 1);
  for (int64_t& index : indices) index = index < 0 ? index + from.dim(at) : index;
  const Tensor taken =
      r.Layer("Gather", {x.tensor},
              Options().Set("indices", indices).Set("axis", static_cast<double>(axis)));
  if (!one) {
    x.tensor = taken;
    r.Set(std::move(x));
    return absl::OkStatus();
  }
  Shape to;
  for (size_t i = 0; i < from.rank(); ++i) {
    if (i != at) to.Append(from.dim(i));
  }
  SetShaped(r, taken, to);
  return absl::OkStatus();
}

absl::Status ReadSlice(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> starts, r.IntsOf("starts", 1));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> ends, r.IntsOf("ends", 2));
  TESSERA_ASSIGN_OR_RETURN(std::vector<int64_t> axes, r.IntsOf("axes", 3));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, r.IntsOf("steps", 4));
  if (starts.empty() || starts.size() != ends.size()) {
    return absl::InvalidArgumentError("starts and ends differ in number, or are missing");
  }
  for (size_t i = axes.size(); i < starts.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  for (const int64_t step : steps) {
    if (step != 1) return absl::UnimplementedError(absl::StrCat("step ", step, "; expected 1"));
  }
  if (r.in(0).kind == Kind::kInts) {
    const std::vector<int64_t>& all = r.in(0).ints;
    const auto size = static_cast<int64_t>(all.size());
    const int64_t begin = Within(starts[0], size), end = Within(ends[0], size);
    r.Set(OnnxValue::OfInts({all.begin() + begin, all.begin() + std::max(begin, end)}));
    return absl::OkStatus();
  }
  TESSERA_ASSIGN_OR_RETURN(Tensor x, r.TensorIn(0));
  const auto rank = static_cast<int64_t>(r.shape(x).rank()) + 1;
  for (size_t i = 0; i < starts.size(); ++i) {
    // All of the batch is no cut.
    if ((axes[i] == 0 || axes[i] == -rank) && starts[i] == 0 && ends[i] >= INT32_MAX) continue;
    TESSERA_ASSIGN_OR_RETURN(const int64_t axis, r.Axis(axes[i], r.shape(x)));
    const int64_t size = r.shape(x).dim(static_cast<size_t>(axis - 1));
    x = r.Layer("Slice", {x},
                Options()
                    .Set("axis", static_cast<double>(axis))
                    .Set("start", static_cast<double>(Within(starts[i], size)))
                    .Set("end", static_cast<double>(Within(ends[i], size))));
  }
  r.Set(x);
  return absl::OkStatus();
}

absl::Status ReadSplit(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(const Tensor x, r.TensorIn(0));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, r.IntsOf("split", 1));
  TESSERA_ASSIGN_OR_RETURN(const int64_t axis, r.Axis(r.Int("axis", 0), r.shape(x)));
  const auto count = static_cast<size_t>(r.node().output_size());
  google::protobuf::Struct options =
      sizes.empty() ? static_cast<google::protobuf::Struct>(
                          Options().Set("num_outputs", static_cast<double>(count)))
                    : static_cast<google::protobuf::Struct>(Options().Set("split", sizes));
  (*options.mutable_fields())["axis"].set_number_value(static_cast<double>(axis));
  const std::vector<Tensor> parts = r.Layers("Split", {x}, std::move(options), count);
  for (size_t k = 0; k < count; ++k) r.Set(OnnxValue::Of(parts[k]), static_cast<int>(k));
  return absl::OkStatus();
}

// A constant to the batch; of a tensor, axes of 1 are repeated.
absl::Status ReadExpand(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, r.IntsIn(1));
  if (r.in(0).kind != Kind::kTensor) {
    if (dims.empty() || dims[0] != OnnxValue::kBatch) {
      return absl::UnimplementedError("to " + DimsText(dims) + "; expected the batch first");
    }
    TESSERA_ASSIGN_OR_RETURN(const Tensor x, r.Materialize(0, dims.size() - 1));
    return Repeat(r, x, dims);
  }
  TESSERA_ASSIGN_OR_RETURN(const Tensor x, r.TensorIn(0));
  if (dims.size() != r.shape(x).rank() + 1 || (dims[0] != OnnxValue::kBatch && dims[0] != 1)) {
    return absl::UnimplementedError("to " + DimsText(dims) + " from " + r.shape(x).ToString());
  }
  return Repeat(r, x, dims);
}

}  // namespace tessera::worker

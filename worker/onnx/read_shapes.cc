// Ops that change shapes, and constants. Most move nothing: they change which axes of a tensor an
// axis of ONNX stands for.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/example_batch.h"
#include "worker/onnx/known_numbers.h"
#include "worker/onnx/read_axes.h"
#include "worker/onnx/reads.h"

namespace tessera::worker {
namespace {

using Axes = OnnxValue::Axes;
using Kind = OnnxValue::Kind;

// An index of a list of this size, counted from the end if negative, clamped to [0, size].
int64_t Within(int64_t index, int64_t size) {
  if (index < 0) index = index < -size ? 0 : index + size;
  return std::min(index, size);
}

// Fills in the open sizes of `dims`: 0 is x's size there, -1 the rest, which is the batch if no
// other axis is.
absl::StatusOr<std::vector<int64_t>> FillIn(std::vector<int64_t> dims,
                                            const std::vector<int64_t>& from, bool allow_zero) {
  const std::string text = absl::StrCat("the shape ", DimsText(dims), " for ", DimsText(from));
  const auto wrong = [&](absl::string_view why) {
    return absl::UnimplementedError(absl::StrCat(text, ": ", why));
  };
  if (std::any_of(from.begin(), from.end(), IsBatch) &&
      std::none_of(dims.begin(), dims.end(),
                   [](int64_t dim) { return dim == -1 || dim == 0 || IsBatch(dim); })) {
    return wrong("it has no place for a batch of any size; export with the batch as dynamic axis");
  }
  constexpr int64_t kMost = int64_t{1} << 31;  // the product of two is an int64, too
  int64_t total = 1, known = 1;
  size_t batches = 0, expected_batches = 0, open = dims.size();
  for (const int64_t size : from) {
    if (total > 0 && BatchFactor(size) > kMost / total)
      return wrong("it has more than 2^31 numbers");
    total *= BatchFactor(size);
    expected_batches += IsBatch(size);
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0 && !allow_zero && i < from.size()) dims[i] = from[i];
    if (dims[i] == -1 && open == dims.size()) {
      open = i;
      continue;
    }
    if (dims[i] < 1 && !IsBatch(dims[i])) return wrong("it has no such sizes");
    const int64_t factor = BatchFactor(dims[i]);
    batches += IsBatch(dims[i]);
    if (factor > total) return wrong("it has other numbers of numbers");
    known *= factor;
    if (known > total) return wrong("it has other numbers of numbers");
  }
  if (open < dims.size() && total % known == 0 && batches <= expected_batches) {
    dims[open] = batches == expected_batches ? total / known : BatchTimes(total / known);
    batches = expected_batches;
    known = total;
  }
  if (known != total) return wrong("it has other numbers of numbers");
  if (batches != expected_batches) {
    return wrong("it has no place for the batch");
  }
  return dims;
}

// The value reshaped to `dims`: merges axes, and splits them where needed. nullopt: an axis of
// `dims` would cross a boundary of axes.
std::optional<OnnxValue> Regrouped(OnnxNodeReader& r, const OnnxValue& value,
                                   const std::vector<int64_t>& dims) {
  struct Piece {
    int axis;
    size_t number;
  };
  const Shape& shape = r.shape(value.tensor);
  std::vector<std::vector<int64_t>> pieces(shape.rank() + 1);  // sizes, by axis of the tensor
  std::vector<int> order;
  for (const Axes& group : value.axes) order.insert(order.end(), group.begin(), group.end());
  size_t next = 0;
  int64_t left = 0;  // of the axis being split; 0: not begun
  std::vector<std::vector<Piece>> groups;
  const auto take = [&](int64_t size) {
    const int axis = order[next];
    groups.back().push_back({axis, pieces[static_cast<size_t>(axis)].size()});
    pieces[static_cast<size_t>(axis)].push_back(size);
    left /= size;
    if (left == 1) {
      ++next;
      left = 0;
    }
  };
  const auto size_of_next = [&] {
    if (left == 0) left = shape.dim(static_cast<size_t>(order[next]) - 1);
    return left;
  };
  for (const int64_t dim : dims) {
    groups.emplace_back();
    int64_t wanted = BatchFactor(dim);
    bool batch = IsBatch(dim);
    while (wanted > 1 || batch) {
      if (next == order.size()) return std::nullopt;
      if (order[next] == 0) {
        if (!std::exchange(batch, false)) return std::nullopt;
        groups.back().push_back({0, 0});
        ++next;
        continue;
      }
      const int64_t size = size_of_next();
      if (wanted % size == 0) {
        take(size);
        wanted /= size;
      } else if (wanted > 1 && size % wanted == 0) {
        take(std::exchange(wanted, 1));
      } else {
        return std::nullopt;
      }
    }
  }
  // The axes left have size 1.
  while (next < order.size()) {
    if (groups.empty() || order[next] == 0 || size_of_next() != 1) return std::nullopt;
    take(1);
  }
  OnnxValue result = value;
  result.axes.clear();
  Shape to;
  std::vector<int> first = {0};  // by axis, its first piece as an axis of the result
  for (size_t axis = 1; axis < pieces.size(); ++axis) {
    first.push_back(static_cast<int>(to.rank()) + 1);
    for (const int64_t size : pieces[axis]) to.Append(size);
  }
  for (const std::vector<Piece>& group : groups) {
    Axes& axes = result.axes.emplace_back();
    for (const Piece& piece : group) {
      axes.push_back(first[static_cast<size_t>(piece.axis)] + static_cast<int>(piece.number));
    }
  }
  if (to.rank() == 0) to.Append(1);  // for a number without axes
  result.tensor = r.Reshaped(value.tensor, to);
  return result;
}

absl::StatusOr<OnnxValue> ReshapedTo(OnnxNodeReader& r, OnnxValue value,
                                     const std::vector<int64_t>& dims) {
  std::optional<OnnxValue> result = Regrouped(r, value, dims);
  const bool batch_first = !value.axes.empty() && value.axes[0] == Axes{0};
  if (!result.has_value() && batch_first) {
    r.LastAxis(value, 1);
    result = Regrouped(r, value, dims);
  }
  if (result.has_value()) return *std::move(result);
  return absl::UnimplementedError(absl::StrCat(
      "the shape ", DimsText(dims), " for ", DimsText(r.DimsOf(value)), ": it would mix samples"));
}

// How many numbers there are along the axes before the batch's, and the factor of that one's size.
std::pair<int64_t, int64_t> BeforeBatch(const std::vector<int64_t>& dims) {
  int64_t before = 1;
  for (const int64_t dim : dims) {
    if (IsBatch(dim)) return {before, BatchFactor(dim)};
    before *= dim;
  }
  return {before, 0};
}

// Reshapes known numbers, whose dimensions have the batch, to `dims`, which FillIn gave.
absl::Status ReshapeRepeated(OnnxValue& x, std::vector<int64_t> dims) {
  const bool once = std::count_if(dims.begin(), dims.end(), IsBatch) == 1;
  if (!once || BeforeBatch(dims) != BeforeBatch(x.dims)) {
    // A number comes to be another sample's.
    if (!x.IsOneNumber()) {
      return absl::UnimplementedError(absl::StrCat("the shape ", DimsText(dims), " for ",
                                                   DimsText(x.dims), ": it would mix samples"));
    }
    size_t size = 1;
    for (const int64_t dim : dims) {
      size *= static_cast<size_t>(KnownSize(dim));
      if (size > 1 << 20) return absl::UnimplementedError("gives more than 2^20 numbers");
    }
    if (!x.floats.empty()) x.floats.assign(size, x.floats[0]);
    if (!x.ints.empty()) x.ints.assign(size, x.ints[0]);
    x.source.clear();
  }
  x.dims = std::move(dims);
  return absl::OkStatus();
}

// The axes that an op names, in a tensor of `rank` axes.
absl::StatusOr<std::vector<size_t>> Counted(const std::vector<int64_t>& axes, size_t rank) {
  std::vector<size_t> counted;
  const auto size = static_cast<int64_t>(rank);
  for (const int64_t axis : axes) {
    if (axis < -size || axis >= size) {
      return absl::InvalidArgumentError(absl::StrCat("axis ", axis, " of ", rank));
    }
    counted.push_back(static_cast<size_t>(axis < 0 ? axis + size : axis));
  }
  return counted;
}

bool Has(const std::vector<size_t>& axes, size_t axis) {
  return std::count(axes.begin(), axes.end(), axis) > 0;
}

}  // namespace

absl::Status ReadConstant(OnnxNodeReader& r) {
  const onnx::AttributeProto* value = r.Attribute("value");
  if (value != nullptr) {
    TESSERA_ASSIGN_OR_RETURN(OnnxValue known, ValueOfTensor(value->t()));
    r.Set(std::move(known));
    return absl::OkStatus();
  }
  OnnxValue known;
  known.kind = Kind::kFloats;
  if (const auto* number = r.Attribute("value_float"); number != nullptr) {
    known.floats = {number->f()};
  } else if (const auto* list = r.Attribute("value_floats"); list != nullptr) {
    known.floats.assign(list->floats().begin(), list->floats().end());
    known.dims = {static_cast<int64_t>(known.floats.size())};
  } else if (const auto* ints = r.Attribute("value_ints"); ints != nullptr) {
    known = OnnxValue::OfInts({ints->ints().begin(), ints->ints().end()});
    for (int64_t& number : known.ints) number = NumberOfFile(number);
  } else if (const auto* one = r.Attribute("value_int"); one != nullptr) {
    known = OnnxValue::OfInt(NumberOfFile(one->i()));
  } else {
    return absl::UnimplementedError("expected a tensor or numbers as its value");
  }
  r.Set(std::move(known));
  return absl::OkStatus();
}

// PyTorch's older exporter merges equal initializers, such as the ones of normalisations, and
// leaves an Identity for each that is gone: it is trained by itself.
absl::Status ReadIdentity(OnnxNodeReader& r) {
  OnnxValue value = r.in(0);
  if (value.trained && value.IsOneNumber()) {
    value.source.clear();
    value.form.clear();
    value.trained_by.clear();
    value.trained_as.clear();
    value.tensor = {};
  }
  r.Set(std::move(value));
  return absl::OkStatus();
}

namespace {

// Floats are float32 here, and so are whole numbers that samples have.
absl::Status CastTo(OnnxNodeReader& r, int64_t to) {
  const bool to_float = IsFloatType(to);
  const bool to_int = to == onnx::TensorProto::INT64 || to == onnx::TensorProto::INT32;
  const bool to_bool = to == onnx::TensorProto::BOOL;
  OnnxValue value = r.in(0);
  const bool ints = value.kind == Kind::kInts;
  const bool numbers = value.kind == Kind::kFloats && !value.trained;  // that stay
  if (to_bool && r.IsTensor(0)) {
    value.tensor = r.Layer("Step", {r.Layer("Abs", {value.tensor})});
  } else if (to_int && r.IsTensor(0)) {
    if (!value.whole) value.tensor = Truncated(r, value.tensor);
  } else if (to_bool && ints) {
    for (int64_t& number : value.ints) number = number != 0 ? 1 : 0;
  } else if (to_float && ints) {
    if (std::any_of(value.ints.begin(), value.ints.end(), IsBatch)) {
      return absl::UnimplementedError("the batch's size as a number of the network");
    }
    value.kind = Kind::kFloats;
    value.floats.assign(value.ints.begin(), value.ints.end());
    value.ints.clear();
  } else if (numbers && (to_int || to_bool)) {
    value.kind = Kind::kInts;
    for (const float number : value.floats) {
      const bool fits = std::fabs(number) < 0x1p62f;
      if (!fits) return absl::UnimplementedError("a cast of huge numbers to whole ones");
      value.ints.push_back(to_bool ? number != 0 : static_cast<int64_t>(number));
    }
    value.floats.clear();
  } else if (!to_float && !(to_int && ints)) {
    return absl::UnimplementedError("a cast of numbers to whole ones");
  }
  r.Set(std::move(value));
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadCast(OnnxNodeReader& r) { return CastTo(r, r.Int("to", 0)); }

absl::Status ReadCastLike(OnnxNodeReader& r) {
  const OnnxValue& like = r.in(1);
  if (like.kind == Kind::kInts || like.whole) {
    return absl::UnimplementedError("like whole numbers or truth values; expected like floats");
  }
  return CastTo(r, onnx::TensorProto::FLOAT);
}

absl::Status ReadShape(OnnxNodeReader& r) {
  const std::vector<int64_t> dims = r.DimsOf(r.in(0));
  const auto size = static_cast<int64_t>(dims.size());
  const int64_t begin = Within(r.Int("start", 0), size), end = Within(r.Int("end", size), size);
  r.Set(OnnxValue::OfInts({dims.begin() + begin, dims.begin() + std::max(begin, end)}));
  return absl::OkStatus();
}

absl::Status ReadSize(OnnxNodeReader& r) {
  OnnxValue size = OnnxValue::OfInt(1);
  for (const int64_t dim : r.DimsOf(r.in(0))) {
    TESSERA_ASSIGN_OR_RETURN(size.ints[0], IntProduct(size.ints[0], dim));
  }
  r.Set(std::move(size));
  return absl::OkStatus();
}

absl::Status ReadFlatten(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  const auto rank = static_cast<int64_t>(x.axes.size());
  int64_t axis = r.Int("axis", 1);
  if (axis < -rank || axis > rank) {
    return absl::InvalidArgumentError(absl::StrCat("axis ", axis, " of ", rank));
  }
  if (axis < 0) axis += rank;
  std::vector<Axes> halves(2);
  for (int64_t k = 0; k < rank; ++k) {
    const Axes& group = x.axes[static_cast<size_t>(k)];
    Axes& half = halves[k < axis ? 0 : 1];
    half.insert(half.end(), group.begin(), group.end());
  }
  x.axes = std::move(halves);
  r.Set(std::move(x));
  return absl::OkStatus();
}

absl::Status ReadReshape(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(std::vector<int64_t> dims, r.IntsOf("shape", 1));
  OnnxValue x = r.in(0);
  if (x.kind == Kind::kInts && !x.HasBatch() && dims.size() < 2) {  // a list, or one of its numbers
    if (dims.empty()
            ? x.ints.size() != 1
            : dims[0] != -1 && dims[0] != 1 && x.ints.size() != static_cast<size_t>(dims[0])) {
      return absl::UnimplementedError("a list of another length");
    }
    x.dims = {static_cast<int64_t>(x.ints.size())};
    if (dims.empty()) x.dims.clear();
    r.Set(std::move(x));
    return absl::OkStatus();
  }
  const bool allow_zero = r.Int("allowzero", 0) != 0;
  TESSERA_ASSIGN_OR_RETURN(dims,
                           FillIn(OfAnyBatch(r, dims, x, allow_zero), r.DimsOf(x), allow_zero));
  if (!r.IsTensor(0)) {
    if (x.HasBatch()) {
      TESSERA_RETURN_IF_ERROR(ReshapeRepeated(x, std::move(dims)));
    } else {
      x.dims = std::move(dims);
    }
    r.Set(std::move(x));
    return absl::OkStatus();
  }
  TESSERA_ASSIGN_OR_RETURN(x, ReshapedTo(r, std::move(x), dims));
  r.Set(std::move(x));
  return absl::OkStatus();
}

absl::Status ReadUnsqueeze(OnnxNodeReader& r) {
  OnnxValue x = r.in(0);
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> named, r.IntsOf("axes", 1));
  const size_t rank = r.DimsOf(x).size() + named.size();
  TESSERA_ASSIGN_OR_RETURN(const std::vector<size_t> axes, Counted(named, rank));
  for (size_t k = 0; k < rank; ++k) {
    if (!Has(axes, k)) continue;
    const auto at = static_cast<int64_t>(k);
    const size_t found = r.IsTensor(0) ? x.axes.size() : x.dims.size();
    if (k > found) return absl::InvalidArgumentError("names an axis twice");
    if (r.IsTensor(0)) {
      x.axes.insert(x.axes.begin() + at, Axes());
    } else {
      x.dims.insert(x.dims.begin() + at, 1);
    }
  }
  r.Set(std::move(x));
  return absl::OkStatus();
}

// Without the attribute all axes of size 1 go, never the batch's.
absl::Status ReadSqueeze(OnnxNodeReader& r) {
  OnnxValue x = r.in(0);
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> named, r.IntsOf("axes", 1));
  const std::vector<int64_t> dims = r.DimsOf(x);
  TESSERA_ASSIGN_OR_RETURN(const std::vector<size_t> axes, Counted(named, dims.size()));
  Axes ones;
  std::vector<size_t> gone;  // the last first
  for (size_t k = dims.size(); k-- > 0;) {
    if (!(axes.empty() ? dims[k] == 1 : Has(axes, k))) continue;
    if (dims[k] != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("axis ", k, " of ", DimsText(dims), " is not 1"));
    }
    const auto at = static_cast<int64_t>(k);
    if (!r.IsTensor(0)) {
      x.dims.erase(x.dims.begin() + at);
      continue;
    }
    ones.insert(ones.end(), x.axes[k].begin(), x.axes[k].end());
    gone.push_back(k);
  }
  if (!ones.empty()) r.DropOnes(x, ones);
  for (const size_t k : gone) x.axes.erase(x.axes.begin() + static_cast<int64_t>(k));
  r.Set(std::move(x));
  return absl::OkStatus();
}

absl::Status ReadTranspose(OnnxNodeReader& r) {
  const OnnxValue& x = r.in(0);
  TESSERA_ASSIGN_OR_RETURN(std::vector<int64_t> named, r.IntsOf("perm", SIZE_MAX));
  const size_t rank = r.DimsOf(x).size();
  for (size_t k = rank; named.size() < rank && k > 0; --k) {
    named.push_back(static_cast<int64_t>(k) - 1);
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<size_t> perm, Counted(named, rank));
  for (size_t k = 0; k < rank; ++k) {
    if (perm.size() != rank || !Has(perm, k)) {
      return absl::InvalidArgumentError(
          absl::StrCat("perm ", DimsText(named), "; expected each of ", rank, " axes once"));
    }
  }
  if (!r.IsTensor(0)) {
    r.Set(TransposedKnown(x, perm));
    return absl::OkStatus();
  }
  OnnxValue y = x;
  for (size_t k = 0; k < rank; ++k) y.axes[k] = x.axes[perm[k]];
  r.Set(std::move(y));
  return absl::OkStatus();
}

}  // namespace tessera::worker

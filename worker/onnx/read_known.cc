// Arithmetic of numbers that a file has and nobody trains.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/known_numbers.h"
#include "worker/onnx/read_axes.h"
#include "worker/onnx/reads.h"

namespace tessera::worker {
namespace {

using Kind = OnnxValue::Kind;
using Formula = std::function<double(const double* x)>;

struct Arithmetic {
  size_t operands;
  Formula formula;
  Kind gives = Kind::kFloats;
};

const std::map<std::string, Arithmetic>& Formulas() {
  static const auto* const formulas = new std::map<std::string, Arithmetic>{
      {"Abs", {1, [](const double* x) { return std::fabs(*x); }}},
      {"Add", {2, [](const double* x) { return x[0] + x[1]; }}},
      {"And", {2, [](const double* x) { return x[0] != 0 && x[1] != 0; }, Kind::kInts}},
      {"Ceil", {1, [](const double* x) { return std::ceil(*x); }}},
      {"Cos", {1, [](const double* x) { return std::cos(*x); }}},
      {"Div", {2, [](const double* x) { return x[0] / x[1]; }}},
      {"Equal", {2, [](const double* x) { return x[0] == x[1]; }, Kind::kInts}},
      {"Erf", {1, [](const double* x) { return std::erf(*x); }}},
      {"Exp", {1, [](const double* x) { return std::exp(*x); }}},
      {"Floor", {1, [](const double* x) { return std::floor(*x); }}},
      {"Greater", {2, [](const double* x) { return x[0] > x[1]; }, Kind::kInts}},
      {"GreaterOrEqual", {2, [](const double* x) { return x[0] >= x[1]; }, Kind::kInts}},
      {"Less", {2, [](const double* x) { return x[0] < x[1]; }, Kind::kInts}},
      {"LessOrEqual", {2, [](const double* x) { return x[0] <= x[1]; }, Kind::kInts}},
      {"Log", {1, [](const double* x) { return std::log(*x); }}},
      {"Max", {2, [](const double* x) { return std::max(x[0], x[1]); }}},
      {"Min", {2, [](const double* x) { return std::min(x[0], x[1]); }}},
      {"Mul", {2, [](const double* x) { return x[0] * x[1]; }}},
      {"Neg", {1, [](const double* x) { return -*x; }}},
      {"Not", {1, [](const double* x) { return *x == 0; }, Kind::kInts}},
      {"Or", {2, [](const double* x) { return x[0] != 0 || x[1] != 0; }, Kind::kInts}},
      {"Pow", {2, [](const double* x) { return std::pow(x[0], x[1]); }}},
      {"Reciprocal", {1, [](const double* x) { return 1 / *x; }}},
      {"Relu", {1, [](const double* x) { return std::max(*x, 0.0); }}},
      {"Round", {1, [](const double* x) { return std::nearbyint(*x); }}},
      {"Sigmoid", {1, [](const double* x) { return 1 / (1 + std::exp(-*x)); }}},
      {"Sin", {1, [](const double* x) { return std::sin(*x); }}},
      {"Softplus",
       {1,
        [](const double* x) { return std::max(*x, 0.0) + std::log1p(std::exp(-std::fabs(*x))); }}},
      {"Sqrt", {1, [](const double* x) { return std::sqrt(*x); }}},
      {"Sub", {2, [](const double* x) { return x[0] - x[1]; }}},
      {"Tanh", {1, [](const double* x) { return std::tanh(*x); }}},
      {"Where", {3, [](const double* x) { return x[0] != 0 ? x[1] : x[2]; }}},
      {"Xor", {2, [](const double* x) { return (x[0] != 0) != (x[1] != 0); }, Kind::kInts}},
  };
  return *formulas;
}

double NumberAt(const OnnxValue& value, size_t i) {
  return value.kind == Kind::kFloats ? static_cast<double>(value.floats[i])
                                     : static_cast<double>(value.ints[i]);
}

absl::Status Fold(OnnxNodeReader& r, const Arithmetic& arithmetic) {
  TESSERA_ASSIGN_OR_RETURN(const KnownBroadcast broadcast, KnownBroadcast::Of(r));
  OnnxValue result;
  result.kind = arithmetic.gives;
  result.dims = broadcast.dims;
  for (size_t i = 0; i < broadcast.size; ++i) {
    double operands[3] = {};
    for (size_t k = 0; k < r.inputs(); ++k) {
      operands[k] = NumberAt(r.in(k), broadcast.PlaceIn(r.in(k), i));
    }
    const double x = arithmetic.formula(operands);
    if (result.kind == Kind::kInts) {
      result.ints.push_back(static_cast<int64_t>(x));
    } else {
      result.floats.push_back(static_cast<float>(x));
    }
  }
  r.Set(std::move(result));
  return absl::OkStatus();
}

}  // namespace

std::optional<absl::Status> ReadKnown(OnnxNodeReader& r) {
  const auto formula = Formulas().find(r.node().op_type());
  if (formula == Formulas().end() || r.inputs() != formula->second.operands) return std::nullopt;
  size_t floats = 0;
  for (size_t i = 0; i < r.inputs(); ++i) {
    if (!r.Has(i) || r.IsTensor(i) || r.in(i).trained) return std::nullopt;
    const std::vector<int64_t>& ints = r.in(i).ints;
    if (std::any_of(ints.begin(), ints.end(), IsBatch)) return std::nullopt;
    floats += r.in(i).kind == Kind::kFloats;
  }
  if (floats == 0) return std::nullopt;
  return Fold(r, formula->second);
}

absl::StatusOr<KnownBroadcast> KnownBroadcast::Of(const OnnxNodeReader& r) {
  KnownBroadcast made;
  for (size_t i = 0; i < r.inputs(); ++i) {
    const std::vector<int64_t>& dims = r.in(i).dims;
    if (dims.size() > made.dims.size()) {
      made.dims.insert(made.dims.begin(), dims.size() - made.dims.size(), 1);
    }
    const size_t missing = made.dims.size() - dims.size();
    for (size_t k = 0; k < dims.size(); ++k) {
      int64_t& size = made.dims[missing + k];
      if (dims[k] != 1 && size != 1 && dims[k] != size) {
        return absl::InvalidArgumentError(
            absl::StrCat(DimsText(made.dims), " meets ", DimsText(dims)));
      }
      if (dims[k] != 1) size = dims[k];
    }
  }
  for (const int64_t size : made.dims) {
    made.size *= static_cast<size_t>(KnownSize(size));
    if (made.size > 1 << 20) return absl::UnimplementedError("gives more than 2^20 numbers");
  }
  return made;
}

size_t KnownBroadcast::PlaceIn(const OnnxValue& value, size_t i) const {
  size_t place = 0, stride = 1;
  const size_t missing = dims.size() - value.dims.size();
  for (size_t k = dims.size(); k > missing; --k) {
    const auto size = static_cast<size_t>(KnownSize(dims[k - 1]));
    const auto own = static_cast<size_t>(KnownSize(value.dims[k - 1 - missing]));
    if (own != 1) place += i % size * stride;
    stride *= own;
    i /= size;
  }
  return place;
}

// Zeros below the diagonal, or above it.
absl::Status ReadTrilu(OnnxNodeReader& r) {
  const std::vector<int64_t> dims = r.DimsOf(r.in(0));
  if (dims.size() < 2) {
    return absl::InvalidArgumentError(absl::StrCat("of ", DimsText(dims), "; expected matrices"));
  }
  int64_t diagonal = 0;
  if (r.Has(1)) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> number, r.IntsIn(1));
    if (number.size() != 1) return absl::InvalidArgumentError("its diagonal is not one number");
    diagonal = number[0];
  }
  const int64_t columns = KnownSize(dims.back()), rows = KnownSize(dims[dims.size() - 2]);
  if (IsBatch(dims.back()) || IsBatch(dims[dims.size() - 2])) {
    return absl::UnimplementedError(absl::StrCat("of ", DimsText(dims), ": it would mix samples"));
  }
  const bool upper = r.Int("upper", 1) != 0;
  const auto stays = [&](size_t i) {
    const int64_t row = static_cast<int64_t>(i) / columns % rows;
    const int64_t beyond = static_cast<int64_t>(i) % columns - row - diagonal;
    return upper ? beyond >= 0 : beyond <= 0;
  };
  if (!r.IsTensor(0) && !r.in(0).trained) {
    OnnxValue x = r.in(0);
    for (size_t i = 0; i < x.floats.size(); ++i) x.floats[i] = stays(i) ? x.floats[i] : 0;
    for (size_t i = 0; i < x.ints.size(); ++i) x.ints[i] = stays(i) ? x.ints[i] : 0;
    x.source.clear();
    r.Set(std::move(x));
    return absl::OkStatus();
  }
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  if (rows * columns > 1 << 20) return absl::UnimplementedError("of more than 2^20 numbers");
  r.LastAxis(x, dims.size() - 2);
  std::vector<int64_t> shape(r.shape(x.tensor).rank(), 1);
  shape.back() = rows * columns;
  google::protobuf::Struct options = Options().Set("shape", shape);
  auto* list = (*options.mutable_fields())["value"].mutable_list_value();
  for (size_t i = 0; i < static_cast<size_t>(shape.back()); ++i) {
    list->add_values()->set_number_value(stays(i) ? 1 : 0);
  }
  const Tensor part = r.Layer("Constant", {}, std::move(options));
  x.tensor = r.Layer("Where", {part, x.tensor, NumberBeside(r, x.tensor, 0)});
  r.SplitLast(x, dims.size() - 2, {rows, columns});
  r.Set(std::move(x));
  return absl::OkStatus();
}

OnnxValue TakenOfKnown(const OnnxValue& value, size_t axis, const std::vector<int64_t>& places) {
  OnnxValue taken = value;
  taken.source.clear();
  taken.floats.clear();
  taken.ints.clear();
  size_t before = 1, after = 1;
  for (size_t k = 0; k < value.dims.size(); ++k) {
    if (k < axis) before *= static_cast<size_t>(KnownSize(value.dims[k]));
    if (k > axis) after *= static_cast<size_t>(KnownSize(value.dims[k]));
  }
  const auto size = static_cast<size_t>(value.dims[axis]);
  for (size_t i = 0; i < before; ++i) {
    for (const int64_t place : places) {
      const auto from = static_cast<int64_t>((i * size + static_cast<size_t>(place)) * after);
      const int64_t to = from + static_cast<int64_t>(after);
      const auto copy = [&](const auto& numbers, auto& out) {
        if (!numbers.empty()) out.insert(out.end(), numbers.begin() + from, numbers.begin() + to);
      };
      copy(value.floats, taken.floats);
      copy(value.ints, taken.ints);
    }
  }
  taken.dims[axis] = static_cast<int64_t>(places.size());
  return taken;
}

OnnxValue TransposedKnown(OnnxValue value, const std::vector<size_t>& perm) {
  const OnnxValue from = value;
  std::vector<size_t> stride(perm.size(), 1);
  for (size_t k = perm.size(); k > 1; --k) {
    stride[k - 2] = stride[k - 1] * static_cast<size_t>(KnownSize(from.dims[k - 1]));
  }
  for (size_t k = 0; k < perm.size(); ++k) value.dims[k] = from.dims[perm[k]];
  const size_t total = std::max(from.floats.size(), from.ints.size());
  for (size_t i = 0; i < total; ++i) {
    size_t rest = i, at = 0;
    for (size_t k = perm.size(); k > 0; --k) {
      const auto size = static_cast<size_t>(KnownSize(value.dims[k - 1]));
      at += rest % size * stride[perm[k - 1]];
      rest /= size;
    }
    if (!from.floats.empty()) value.floats[i] = from.floats[at];
    if (!from.ints.empty()) value.ints[i] = from.ints[at];
  }
  absl::StrAppend(&value.form, " transposed");
  for (const size_t axis : perm) absl::StrAppend(&value.form, " ", axis);
  return value;
}

OnnxValue JoinedKnown(const std::vector<OnnxValue>& parts, size_t axis) {
  OnnxValue joined = parts[0];
  joined.source.clear();
  joined.floats.clear();
  joined.ints.clear();
  joined.dims[axis] = 0;
  size_t before = 1;
  for (size_t k = 0; k < axis; ++k) before *= static_cast<size_t>(KnownSize(joined.dims[k]));
  for (const OnnxValue& part : parts) joined.dims[axis] += part.dims[axis];
  for (size_t i = 0; i < before; ++i) {
    for (const OnnxValue& part : parts) {
      const auto copy = [&](const auto& numbers, auto& out) {
        const auto each = static_cast<int64_t>(numbers.size() / before);
        const auto begin = numbers.begin() + static_cast<int64_t>(i) * each;
        out.insert(out.end(), begin, begin + each);
      };
      copy(part.floats, joined.floats);
      copy(part.ints, joined.ints);
    }
  }
  return joined;
}

bool ReadsKnown(const OnnxNodeReader& r) { return !r.IsTensor(0) && !r.in(0).trained; }

absl::StatusOr<size_t> KnownAxis(int64_t axis, const OnnxValue& known) {
  const auto rank = static_cast<int64_t>(known.dims.size());
  const int64_t at = axis < 0 ? axis + rank : axis;
  if (at >= 0 && at < rank && !IsBatch(known.dims[static_cast<size_t>(at)])) {
    return static_cast<size_t>(at);
  }
  return absl::UnimplementedError(
      absl::StrCat("axis ", axis, " of the constant ", DimsText(known.dims)));
}

}  // namespace tessera::worker

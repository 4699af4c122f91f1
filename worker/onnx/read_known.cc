// Arithmetic of numbers that a file has and nobody trains.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/read.h"

namespace tessera::worker {
namespace {

using Kind = OnnxValue::Kind;
using Formula = std::function<double(double, double)>;

// By op type; of one operand, the first.
const std::map<std::string, std::pair<size_t, Formula>>& Formulas() {
  static const auto* const formulas = new std::map<std::string, std::pair<size_t, Formula>>{
      {"Abs", {1, [](double a, double) { return std::fabs(a); }}},
      {"Add", {2, [](double a, double b) { return a + b; }}},
      {"Div", {2, [](double a, double b) { return a / b; }}},
      {"Exp", {1, [](double a, double) { return std::exp(a); }}},
      {"Log", {1, [](double a, double) { return std::log(a); }}},
      {"Max", {2, [](double a, double b) { return std::max(a, b); }}},
      {"Min", {2, [](double a, double b) { return std::min(a, b); }}},
      {"Mul", {2, [](double a, double b) { return a * b; }}},
      {"Neg", {1, [](double a, double) { return -a; }}},
      {"Pow", {2, [](double a, double b) { return std::pow(a, b); }}},
      {"Reciprocal", {1, [](double a, double) { return 1 / a; }}},
      {"Sqrt", {1, [](double a, double) { return std::sqrt(a); }}},
      {"Sub", {2, [](double a, double b) { return a - b; }}},
  };
  return *formulas;
}

double NumberAt(const OnnxValue& value, size_t i) {
  return value.kind == Kind::kFloats ? static_cast<double>(value.floats[i])
                                     : static_cast<double>(value.ints[i]);
}

// Where an operand of `dims` has what the result has at `index`, one for each of its axes.
size_t PlaceOf(const std::vector<int64_t>& dims, const std::vector<int64_t>& index) {
  size_t at = 0;
  const size_t missing = index.size() - dims.size();
  for (size_t k = 0; k < dims.size(); ++k) {
    const int64_t size = KnownSize(dims[k]);
    at = at * static_cast<size_t>(size) + (size == 1 ? 0 : static_cast<size_t>(index[missing + k]));
  }
  return at;
}

absl::Status Fold(OnnxNodeReader& r, const Formula& formula) {
  const OnnxValue a = r.in(0), b = r.in(r.inputs() - 1);
  OnnxValue result;
  result.kind = Kind::kFloats;
  const size_t rank = std::max(a.dims.size(), b.dims.size());
  size_t total = 1;
  for (size_t k = 0; k < rank; ++k) {
    int64_t size = 1;
    for (const OnnxValue* value : {&a, &b}) {
      const size_t missing = rank - value->dims.size();
      const int64_t found = k < missing ? 1 : value->dims[k - missing];
      if (found != 1 && size != 1 && found != size) {
        return absl::InvalidArgumentError(
            absl::StrCat(DimsText(a.dims), " meets ", DimsText(b.dims)));
      }
      if (found != 1) size = found;
    }
    result.dims.push_back(size);
    total *= static_cast<size_t>(KnownSize(size));
    if (total > 1 << 20) return absl::UnimplementedError("gives more than 2^20 numbers");
  }
  std::vector<int64_t> index(rank, 0);
  for (size_t i = 0; i < total; ++i) {
    size_t rest = i;
    for (size_t k = rank; k > 0; --k) {
      const auto size = static_cast<size_t>(KnownSize(result.dims[k - 1]));
      index[k - 1] = static_cast<int64_t>(rest % size);
      rest /= size;
    }
    result.floats.push_back(static_cast<float>(
        formula(NumberAt(a, PlaceOf(a.dims, index)), NumberAt(b, PlaceOf(b.dims, index)))));
  }
  r.Set(std::move(result));
  return absl::OkStatus();
}

}  // namespace

std::optional<absl::Status> ReadKnown(OnnxNodeReader& r) {
  const auto formula = Formulas().find(r.node().op_type());
  if (formula == Formulas().end() || r.inputs() != formula->second.first) return std::nullopt;
  size_t floats = 0;
  for (size_t i = 0; i < r.inputs(); ++i) {
    if (!r.Has(i) || r.IsTensor(i) || r.in(i).trained) return std::nullopt;
    const std::vector<int64_t>& ints = r.in(i).ints;
    if (std::any_of(ints.begin(), ints.end(), IsBatch)) return std::nullopt;
    floats += r.in(i).kind == Kind::kFloats;
  }
  if (floats == 0) return std::nullopt;
  return Fold(r, formula->second.second);
}

// Zeros below the diagonal, or above it.
absl::Status ReadTrilu(OnnxNodeReader& r) {
  if (!r.Has(0) || r.in(0).kind != Kind::kFloats || r.in(0).trained || r.in(0).dims.size() < 2) {
    return absl::UnimplementedError("expected a matrix of constants");
  }
  int64_t diagonal = 0;
  if (r.Has(1)) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> number, r.IntsIn(1));
    if (number.size() != 1) return absl::InvalidArgumentError("its diagonal is not one number");
    diagonal = number[0];
  }
  OnnxValue x = r.in(0);
  const int64_t columns = KnownSize(x.dims.back()), rows = KnownSize(x.dims[x.dims.size() - 2]);
  const bool upper = r.Int("upper", 1) != 0;
  for (size_t i = 0; i < x.floats.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) / columns % rows;
    const int64_t beyond = static_cast<int64_t>(i) % columns - row - diagonal;
    if (upper ? beyond < 0 : beyond > 0) x.floats[i] = 0;
  }
  x.source.clear();
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

}  // namespace tessera::worker

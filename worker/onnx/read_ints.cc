// Whole numbers that are known when a file is read: the arithmetic of shapes that exporters leave.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/known_numbers.h"
#include "worker/onnx/reads.h"

namespace tessera::worker {
namespace {

constexpr int64_t kMost = int64_t{1} << 31;
constexpr int64_t kMostMore = 1 << 20;  // of BatchTimes

// Sums, multiples and quotients of the batch's size, which are BatchTimes or known, as of a batch
// that is cut in parts: (2 batch + 1) / 2. nullopt: this is none.
std::optional<int64_t> OfBatch(absl::string_view op, int64_t x, int64_t y) {
  struct Number {
    explicit Number(int64_t of)
        : factor(IsBatch(of) ? BatchFactor(of) : 0), more(IsBatch(of) ? BatchMore(of) : of) {}
    int64_t factor, more;
  };
  const Number a(x), b(y);
  if (std::min(a.more, b.more) < -kMost || std::max(a.more, b.more) > kMost) return std::nullopt;
  int64_t factor = 0, more = -1;
  if (op == "Add") {
    factor = a.factor + b.factor;
    more = a.more + b.more;
  } else if (op == "Sub") {
    factor = a.factor - b.factor;
    more = a.more - b.more;
    if (factor == 0) return more;
  } else if (op == "Mul" && (a.factor == 0 || b.factor == 0)) {
    const Number &of = a.factor == 0 ? b : a, &times = a.factor == 0 ? a : b;
    factor = of.factor * times.more;
    more = of.more * times.more;
  } else if (op == "Div" && b.factor == 0 && b.more >= 1 && a.factor % b.more == 0) {
    factor = a.factor / b.more;
    more = a.more / b.more;
  } else if (op == "Div" && b.factor > 0 && a.more == 0 && b.more == 0 &&
             a.factor % b.factor == 0) {
    return a.factor / b.factor;
  } else if ((op == "Mod" || op == "Fmod") && b.factor == 0 && b.more >= 1 &&
             a.factor % b.more == 0) {
    return a.more % b.more;
  }
  if (factor < 1 || factor > kMost || more < 0 || more > kMostMore) return std::nullopt;
  return BatchTimes(factor, more);
}

absl::StatusOr<int64_t> Of(absl::string_view op, int64_t x, int64_t y) {
  if (op == "Equal") return x == y ? 1 : 0;
  if (op == "And") return x != 0 && y != 0 ? 1 : 0;
  if (op == "Or") return x != 0 || y != 0 ? 1 : 0;
  if (op == "Xor") return (x != 0) != (y != 0) ? 1 : 0;
  if (IsBatch(x) || IsBatch(y)) {
    if (const std::optional<int64_t> found = OfBatch(op, x, y); found.has_value()) return *found;
  }
  if (op == "Max" || op == "Min") {
    if (x == y) return x;
    // A batch has one sample or more.
    const bool one = !(IsBatch(x) && IsBatch(y)) && (IsBatch(x) ? y : x) <= 1;
    if (one && (IsBatch(x) || IsBatch(y))) return (op == "Max") == IsBatch(x) ? x : y;
  }
  const bool known = std::min(x, y) >= -kMost && std::max(x, y) <= kMost;
  if (!known || (y == 0 && (op == "Div" || op == "Mod" || op == "Fmod"))) {
    return absl::UnimplementedError("arithmetic with the batch's size, or with huge numbers");
  }
  if (op == "Add") return x + y;
  if (op == "Sub") return x - y;
  if (op == "Mul") return x * y;
  if (op == "Div") return x / y;
  if (op == "Mod") return ((x % y) + y) % y;
  if (op == "Fmod") return x % y;
  if (op == "Max") return std::max(x, y);
  if (op == "Min") return std::min(x, y);
  if (op == "Greater") return x > y ? 1 : 0;
  if (op == "GreaterOrEqual") return x >= y ? 1 : 0;
  if (op == "Less") return x < y ? 1 : 0;
  if (op == "LessOrEqual") return x <= y ? 1 : 0;
  return absl::UnimplementedError("of whole numbers");
}

}  // namespace

bool AllInts(const OnnxNodeReader& r) {
  for (size_t i = 0; i < r.inputs(); ++i) {
    if (!r.Has(i) || r.in(i).kind != OnnxValue::Kind::kInts) return false;
  }
  return r.inputs() > 0;
}

absl::StatusOr<int64_t> IntProduct(int64_t a, int64_t b) { return Of("Mul", a, b); }

absl::Status ReadConstantOfShape(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, r.IntsIn(0));
  int64_t count = 1;  // for one sample, if the batch is among them
  for (const int64_t dim : dims) {
    if (IsBatch(dim)) continue;
    if (dim < 0 || dim > 1 << 20 || count > 1 << 20) {
      return absl::UnimplementedError("its shape is not known, or above 2^20 numbers");
    }
    count *= dim;
  }
  OnnxValue one;
  one.kind = OnnxValue::Kind::kFloats;
  one.floats = {0};
  if (const onnx::AttributeProto* value = r.Attribute("value"); value != nullptr) {
    TESSERA_ASSIGN_OR_RETURN(one, ValueOfTensor(value->t()));
  }
  if (count > 1 << 20 || one.floats.size() + one.ints.size() != 1) {
    return absl::UnimplementedError("expected one number, at most 2^20 times");
  }
  one.dims = dims;
  if (one.kind == OnnxValue::Kind::kInts) one.ints.assign(static_cast<size_t>(count), one.ints[0]);
  if (one.kind == OnnxValue::Kind::kFloats) {
    one.floats.assign(static_cast<size_t>(count), one.floats[0]);
  }
  r.Set(std::move(one));
  return absl::OkStatus();
}

// OneHot: for each place a list of `depth` numbers, of which one differs.
absl::Status ReadOneHot(OnnxNodeReader& r) {
  if (r.IsTensor(0)) {
    TESSERA_ASSIGN_OR_RETURN(OnnxValue made, OneHotBySample(r));
    r.Set(std::move(made));
    return absl::OkStatus();
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> places, r.IntsIn(0));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> depths, r.IntsIn(1));
  OnnxValue made = r.in(2);
  const auto rank = static_cast<int64_t>(r.in(0).dims.size()) + 1;
  int64_t axis = r.Int("axis", -1);
  if (axis < 0) axis += rank;
  if (made.kind == OnnxValue::Kind::kTensor || made.dims != std::vector<int64_t>{2} || axis < 0 ||
      axis >= rank || depths.size() != 1 || depths[0] < 1 ||
      depths[0] * static_cast<int64_t>(places.size() + 1) > 1 << 20) {
    return absl::UnimplementedError(
        "expected a known depth, two known numbers, and at most 2^20 in all");
  }
  made.trained = false;  // they mean no and yes
  const int64_t depth = depths[0];
  // [before, 1, after] becomes [before, depth, after].
  std::vector<int64_t> chosen;
  int64_t after = 1;
  for (int64_t k = axis; k < rank - 1; ++k) after *= r.in(0).dims[static_cast<size_t>(k)];
  for (size_t i = 0; i < places.size(); i += static_cast<size_t>(after)) {
    for (int64_t d = 0; d < depth; ++d) {
      for (int64_t j = 0; j < after; ++j) {
        const int64_t place = places[i + static_cast<size_t>(j)];
        chosen.push_back((place < 0 ? place + depth : place) == d ? 1 : 0);
      }
    }
  }
  made = TakenOfKnown(made, 0, chosen);
  made.dims = r.in(0).dims;
  made.dims.insert(made.dims.begin() + axis, depth);
  r.Set(std::move(made));
  return absl::OkStatus();
}

// EyeLike: a matrix of the input's size with 1 on a diagonal, 0 elsewhere.
absl::Status ReadEyeLike(OnnxNodeReader& r) {
  const std::vector<int64_t> dims = r.DimsOf(r.in(0));
  const bool known = dims.size() == 2 && std::none_of(dims.begin(), dims.end(), IsBatch) &&
                     dims[0] <= 1 << 10 && dims[1] <= 1 << 10;
  if (!known) {
    return absl::UnimplementedError(
        absl::StrCat("like ", DimsText(dims), "; expected a matrix of at most 1024 by 1024"));
  }
  OnnxValue made;
  made.kind = OnnxValue::Kind::kFloats;
  made.dims = dims;
  for (int64_t i = 0; i < dims[0] * dims[1]; ++i) {
    made.floats.push_back(i % dims[1] - i / dims[1] == r.Int("k", 0) ? 1 : 0);
  }
  r.Set(std::move(made));
  return absl::OkStatus();
}

// The places of numbers other than 0, a column for each place. Of numbers that all samples have
// they are each sample's own.
absl::Status ReadNonZero(OnnxNodeReader& r) {
  const OnnxValue& mask = r.in(0);
  const bool by_sample = mask.HasBatch();
  const bool first = by_sample && mask.dims[0] == BatchTimes(1) &&
                     std::count_if(mask.dims.begin(), mask.dims.end(), IsBatch) == 1;
  if (r.IsTensor(0) || mask.trained || mask.dims.empty() || (by_sample && !first)) {
    return absl::UnimplementedError(
        "of numbers that samples compute, or not with the batch first: how many places a sample "
        "has must be known when the file is read; multiply by the mask, or let Where choose");
  }
  const std::vector<int64_t> sizes(mask.dims.begin() + (by_sample ? 1 : 0), mask.dims.end());
  OnnxValue places = OnnxValue::OfInts({});
  std::vector<int64_t> found;
  const size_t total = std::max(mask.floats.size(), mask.ints.size());
  for (size_t i = 0; i < total; ++i) {
    const bool is = mask.ints.empty() ? mask.floats[i] != 0 : mask.ints[i] != 0;
    if (is) found.push_back(static_cast<int64_t>(i));
  }
  const size_t count = found.size();
  if (count == 0) return absl::UnimplementedError("of nothing but 0: it gives no place");
  for (const int64_t at : found) {
    int64_t after = static_cast<int64_t>(total);
    for (const int64_t size : sizes) {
      after /= size;
      places.ints.push_back(at / after % size);
    }
  }
  places.dims = {static_cast<int64_t>(count), static_cast<int64_t>(sizes.size())};
  if (by_sample && sizes.empty()) {  // of ones alone: a count, as before Range
    places = OnnxValue::OfInts({0});
    places.dims = {1, BatchTimes(1)};
    places.per_sample = 1;
    places.counts = OnnxValue::kAnyOrder;
  } else if (by_sample) {
    places.of_mask = true;
    places.dims = {static_cast<int64_t>(mask.dims.size()), BatchTimes(static_cast<int64_t>(count))};
  } else {
    places = TransposedKnown(std::move(places), {1, 0});
    places.form.clear();
  }
  r.Set(std::move(places));
  return absl::OkStatus();
}

absl::Status ReadRange(OnnxNodeReader& r) {
  if (r.in(0).IsAll(0) && r.in(1).IsAll(BatchTimes(1)) && r.in(2).IsAll(1)) {
    OnnxValue counted = OnnxValue::OfInts({0});
    counted.dims = {BatchTimes(1)};
    counted.per_sample = 1;
    counted.counts = OnnxValue::kAnyOrder;
    r.Set(std::move(counted));
    return absl::OkStatus();
  }
  int64_t limits[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> number, r.IntsIn(i));
    if (number.size() != 1 || number[0] < -kMost || number[0] > kMost) {
      return absl::UnimplementedError("expected three known numbers");
    }
    limits[i] = number[0];
  }
  const auto [begin, end, step] = limits;
  if (step == 0 || (end - begin) / step > 1 << 20) {
    return absl::UnimplementedError("expected at most 2^20 numbers");
  }
  std::vector<int64_t> numbers;
  for (int64_t at = begin; step > 0 ? at < end : at > end; at += step) numbers.push_back(at);
  r.Set(OnnxValue::OfInts(std::move(numbers)));
  return absl::OkStatus();
}

// ONNX's arithmetic, comparisons, logic and Where on whole numbers.
absl::Status ReadIntArithmetic(OnnxNodeReader& r) {
  // Fmod: the remainder with the sign of the first operand.
  const std::string op = r.Int("fmod", 0) != 0 ? "Fmod" : r.node().op_type();
  const size_t operands = op == "Where" ? 3 : op == "Neg" || op == "Not" ? 1 : 2;
  if (!AllInts(r) || r.inputs() != operands) {
    return absl::UnimplementedError("expected lists of known whole numbers");
  }
  TESSERA_ASSIGN_OR_RETURN(const KnownBroadcast broadcast, KnownBroadcast::Of(r));
  OnnxValue result = OnnxValue::OfInts({});
  result.dims = broadcast.dims;
  for (size_t i = 0; i < broadcast.size; ++i) {
    const auto at = [&](size_t operand) {
      const OnnxValue& value = r.in(operand);
      return value.ints[broadcast.PlaceIn(value, i)];
    };
    if (op == "Where") {
      result.ints.push_back(at(0) != 0 ? at(1) : at(2));
    } else if (op == "Not") {
      result.ints.push_back(at(0) == 0 ? 1 : 0);
    } else if (op == "Neg") {
      TESSERA_ASSIGN_OR_RETURN(result.ints.emplace_back(), Of("Sub", 0, at(0)));
    } else {
      TESSERA_ASSIGN_OR_RETURN(result.ints.emplace_back(), Of(op, at(0), at(1)));
    }
  }
  r.Set(std::move(result));
  return absl::OkStatus();
}

}  // namespace tessera::worker

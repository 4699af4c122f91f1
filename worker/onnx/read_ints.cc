#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/read.h"

namespace tessera::worker {
namespace {

constexpr int64_t kMost = int64_t{1} << 31;

// Element i of a list that broadcasts.
int64_t At(const OnnxValue& value, size_t i) { return value.ints[value.ints.size() == 1 ? 0 : i]; }

// The shape that lists of one shape or of one number broadcast to.
absl::StatusOr<OnnxValue> Broadcast(const OnnxNodeReader& r) {
  OnnxValue result = OnnxValue::OfInts({});
  for (size_t i = 0; i < r.inputs(); ++i) {
    const OnnxValue& value = r.in(i);
    const bool grows = value.ints.size() > result.ints.size();
    if (value.ints.empty() ||
        (!grows && value.ints.size() != 1 && value.ints.size() != result.ints.size())) {
      return absl::UnimplementedError("its lists of whole numbers differ in size");
    }
    if (grows && result.ints.size() > 1) {
      return absl::UnimplementedError("its lists of whole numbers differ in size");
    }
    if (grows || value.dims.size() > result.dims.size()) result = value;
  }
  return result;
}

}  // namespace

bool AllInts(const OnnxNodeReader& r) {
  for (size_t i = 0; i < r.inputs(); ++i) {
    if (!r.Has(i) || r.in(i).kind != OnnxValue::Kind::kInts) return false;
  }
  return r.inputs() > 0;
}

absl::Status ReadConstantOfShape(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, r.IntsIn(0));
  int64_t count = 1;
  for (const int64_t dim : dims) {
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

// Add, Sub, Mul, Div and Equal.
absl::Status ReadIntArithmetic(OnnxNodeReader& r) {
  if (!AllInts(r) || r.inputs() != 2) {
    return absl::UnimplementedError("expected two lists of known whole numbers");
  }
  TESSERA_ASSIGN_OR_RETURN(OnnxValue result, Broadcast(r));
  const std::string& op = r.node().op_type();
  const OnnxValue a = r.in(0), b = r.in(1);
  for (size_t i = 0; i < result.ints.size(); ++i) {
    const int64_t x = At(a, i), y = At(b, i);
    if (op == "Equal") {
      result.ints[i] = x == y ? 1 : 0;
      continue;
    }
    if (std::min(x, y) < -kMost || std::max(x, y) > kMost || (op == "Div" && y == 0)) {
      return absl::UnimplementedError("arithmetic with the batch's size, or with huge numbers");
    }
    if (op == "Add") result.ints[i] = x + y;
    if (op == "Sub") result.ints[i] = x - y;
    if (op == "Mul") result.ints[i] = x * y;
    if (op == "Div") result.ints[i] = x / y;
  }
  r.Set(std::move(result));
  return absl::OkStatus();
}

absl::Status ReadWhere(OnnxNodeReader& r) {
  if (!AllInts(r) || r.inputs() != 3) {
    return absl::UnimplementedError("expected three lists of known whole numbers");
  }
  TESSERA_ASSIGN_OR_RETURN(OnnxValue result, Broadcast(r));
  const OnnxValue which = r.in(0), a = r.in(1), b = r.in(2);
  for (size_t i = 0; i < result.ints.size(); ++i) {
    result.ints[i] = At(which, i) != 0 ? At(a, i) : At(b, i);
  }
  r.Set(std::move(result));
  return absl::OkStatus();
}

}  // namespace tessera::worker

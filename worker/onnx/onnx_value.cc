#include "worker/onnx/onnx_value.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/math/bfloat16.h"

namespace tessera::worker {
namespace {

// From little-endian bytes, or from the typed field where there are none.
template <typename T, typename Field, typename Out>
void Take(const onnx::TensorProto& tensor, const Field& field, std::vector<Out>* out) {
  const std::string& raw = tensor.raw_data();
  if (raw.empty()) {
    out->assign(field.begin(), field.end());
    return;
  }
  out->resize(raw.size() / sizeof(T));
  for (size_t i = 0; i < out->size(); ++i) {
    T value;
    std::memcpy(&value, raw.data() + i * sizeof(T), sizeof(T));
    (*out)[i] = static_cast<Out>(value);
  }
}

// IEEE 754's binary16: a sign, 5 bits of exponent, 10 of fraction.
float FloatOfHalf(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                     : exponent == 31
                         ? (fraction == 0 ? INFINITY : NAN)
                         : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return bits >> 15 != 0 ? -size : size;
}

template <typename Widen>
void TakeHalves(const onnx::TensorProto& tensor, Widen widen, std::vector<float>* out) {
  std::vector<uint16_t> bits;
  Take<uint16_t>(tensor, tensor.int32_data(), &bits);
  for (const uint16_t number : bits) out->push_back(widen(number));
}

}  // namespace

OnnxValue OnnxValue::Of(Tensor tensor, size_t rank) {
  OnnxValue value;
  value.tensor = tensor;
  for (size_t k = 0; k <= rank; ++k) value.axes.push_back({static_cast<int>(k)});
  return value;
}

OnnxValue OnnxValue::OfInts(std::vector<int64_t> ints) {
  OnnxValue value;
  value.kind = Kind::kInts;
  value.dims = {static_cast<int64_t>(ints.size())};
  value.ints = std::move(ints);
  return value;
}

OnnxValue OnnxValue::OfInt(int64_t number) {
  OnnxValue value = OfInts({number});
  value.dims.clear();
  return value;
}

bool OnnxValue::IsAll(int64_t number) const {
  return kind == Kind::kInts && !ints.empty() &&
         std::all_of(ints.begin(), ints.end(), [&](int64_t found) { return found == number; });
}

bool OnnxValue::IsOneNumber() const {
  const auto alike = [](const auto& numbers) {
    return std::all_of(numbers.begin(), numbers.end(), [&](auto n) { return n == numbers[0]; });
  };
  return kind != Kind::kTensor && !CountsSamples() && !(floats.empty() && ints.empty()) &&
         alike(floats) && alike(ints);
}

size_t OnnxValue::batch_axis() const {
  const auto group = std::find_if(axes.begin(), axes.end(), [](const Axes& axis) {
    return std::count(axis.begin(), axis.end(), 0) > 0;
  });
  return static_cast<size_t>(group - axes.begin());
}

bool OnnxValue::HasBatch() const {
  return kind != Kind::kTensor && std::any_of(dims.begin(), dims.end(), IsBatch);
}

std::string DimsText(const std::vector<int64_t>& dims) {
  const auto append = [](std::string* out, int64_t dim) {
    if (!IsBatch(dim)) return absl::StrAppend(out, dim);
    absl::StrAppend(out, "batch");
    if (BatchFactor(dim) != 1) absl::StrAppend(out, " * ", BatchFactor(dim));
  };
  return absl::StrCat("[", absl::StrJoin(dims, ", ", append), "]");
}

bool IsFloatType(int64_t type) {
  return type == onnx::TensorProto::FLOAT || type == onnx::TensorProto::DOUBLE ||
         type == onnx::TensorProto::FLOAT16 || type == onnx::TensorProto::BFLOAT16;
}

absl::StatusOr<OnnxValue> ValueOfTensor(const onnx::TensorProto& tensor) {
  if (tensor.data_location() == onnx::TensorProto::EXTERNAL) {
    return absl::UnimplementedError(absl::StrCat(
        "tensor \"", tensor.name(), "\" lies outside of the file, where it is not looked for"));
  }
  OnnxValue value;
  value.dims.assign(tensor.dims().begin(), tensor.dims().end());
  value.kind = OnnxValue::Kind::kInts;
  switch (tensor.data_type()) {
    case onnx::TensorProto::FLOAT:
      value.kind = OnnxValue::Kind::kFloats;
      Take<float>(tensor, tensor.float_data(), &value.floats);
      break;
    case onnx::TensorProto::DOUBLE:
      value.kind = OnnxValue::Kind::kFloats;
      Take<double>(tensor, tensor.double_data(), &value.floats);
      break;
    case onnx::TensorProto::FLOAT16:
      value.kind = OnnxValue::Kind::kFloats;
      TakeHalves(tensor, &FloatOfHalf, &value.floats);
      break;
    case onnx::TensorProto::BFLOAT16:
      value.kind = OnnxValue::Kind::kFloats;
      TakeHalves(tensor, &math::FromBfloat16, &value.floats);
      break;
    case onnx::TensorProto::INT64:
      Take<int64_t>(tensor, tensor.int64_data(), &value.ints);
      break;
    case onnx::TensorProto::INT32:
      Take<int32_t>(tensor, tensor.int32_data(), &value.ints);
      break;
    case onnx::TensorProto::INT16:
      Take<int16_t>(tensor, tensor.int32_data(), &value.ints);
      break;
    case onnx::TensorProto::INT8:
      Take<int8_t>(tensor, tensor.int32_data(), &value.ints);
      break;
    case onnx::TensorProto::UINT32:
      Take<uint32_t>(tensor, tensor.uint64_data(), &value.ints);
      break;
    case onnx::TensorProto::UINT16:
      Take<uint16_t>(tensor, tensor.int32_data(), &value.ints);
      break;
    case onnx::TensorProto::UINT8:
    case onnx::TensorProto::BOOL:
      Take<uint8_t>(tensor, tensor.int32_data(), &value.ints);
      break;
    default:
      return absl::UnimplementedError(absl::StrCat(
          "tensor \"", tensor.name(), "\" has elements of type ", tensor.data_type(), " ",
          onnx::TensorProto::DataType_Name(
              static_cast<onnx::TensorProto::DataType>(tensor.data_type())),
          "; expected floats of 16, 32 or 64 bits, whole numbers or bool"));
  }
  for (int64_t& number : value.ints) number = NumberOfFile(number);
  uint64_t elements = 1;
  constexpr uint64_t kMost = uint64_t{1} << 31;
  for (const int64_t dim : value.dims) {
    elements = dim < 0 || elements > kMost ? kMost + 1 : elements * static_cast<uint64_t>(dim);
  }
  const size_t found = std::max(value.floats.size(), value.ints.size());
  if (elements != found) {
    return absl::InvalidArgumentError(absl::StrCat("tensor \"", tensor.name(), "\" [",
                                                   absl::StrJoin(value.dims, ", "), "] has ", found,
                                                   " numbers"));
  }
  return value;
}

absl::Status Printable(const absl::Status& status) {
  const absl::string_view text = status.message();
  if (std::all_of(text.begin(), text.end(), absl::ascii_isprint)) return status;
  return absl::Status(status.code(), absl::CHexEscape(text));
}

}  // namespace tessera::worker

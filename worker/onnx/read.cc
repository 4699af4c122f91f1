#include "worker/onnx/read.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace tessera::worker {

const OnnxValue& OnnxNodeReader::in(size_t i) const {
  static const OnnxValue none = OnnxValue::OfInts({});
  return Has(i) ? values_.at(node_.input(static_cast<int>(i))) : none;
}

absl::StatusOr<Tensor> OnnxNodeReader::TensorIn(size_t i) {
  if (!Has(i)) return absl::InvalidArgumentError(absl::StrCat("input ", i, " is missing"));
  const OnnxValue& value = in(i);
  const char* wrong = nullptr;
  if (value.kind != OnnxValue::Kind::kTensor) {
    wrong = "is a constant; expected a tensor of the network";
  } else if (value.flat) {
    wrong = "is [batch], and only elementwise ops read that; expected [batch, ...]";
  } else if (value.batch_last) {
    wrong = "has its batch as the last axis; expected it as the first";
  }
  if (wrong == nullptr) return value.tensor;
  return absl::UnimplementedError(
      absl::StrCat("input \"", node_.input(static_cast<int>(i)), "\" ", wrong));
}

absl::StatusOr<std::vector<int64_t>> OnnxNodeReader::IntsIn(size_t i) const {
  if (!Has(i)) return absl::InvalidArgumentError(absl::StrCat("input ", i, " is missing"));
  if (in(i).kind == OnnxValue::Kind::kInts) return in(i).ints;
  return absl::UnimplementedError(absl::StrCat("input \"", node_.input(static_cast<int>(i)),
                                               "\" is no constant of whole numbers"));
}

absl::StatusOr<std::vector<float>> OnnxNodeReader::WeightIn(size_t i) {
  if (!Has(i)) return absl::InvalidArgumentError(absl::StrCat("input ", i, " is missing"));
  const std::string& name = node_.input(static_cast<int>(i));
  OnnxValue& value = values_.at(name);
  if (value.kind != OnnxValue::Kind::kFloats) {
    return absl::UnimplementedError(
        absl::StrCat("input \"", name, "\" is computed; expected an initializer or a constant"));
  }
  if (value.initializer == node_.output(0)) return value.floats;
  if (!value.initializer.empty()) {
    return absl::UnimplementedError(absl::StrCat("\"", name, "\" is trained by node \"",
                                                 value.initializer,
                                                 "\" already: parameters cannot be shared"));
  }
  value.initializer = node_.output(0);
  return value.floats;
}

const onnx::AttributeProto* OnnxNodeReader::Attribute(absl::string_view name) const {
  for (const onnx::AttributeProto& attribute : node_.attribute()) {
    if (name == attribute.name()) return &attribute;
  }
  return nullptr;
}

int64_t OnnxNodeReader::Int(absl::string_view name, int64_t by_default) const {
  const onnx::AttributeProto* attribute = Attribute(name);
  return attribute == nullptr ? by_default : attribute->i();
}

float OnnxNodeReader::Float(absl::string_view name, float by_default) const {
  const onnx::AttributeProto* attribute = Attribute(name);
  return attribute == nullptr ? by_default : attribute->f();
}

absl::StatusOr<std::vector<int64_t>> OnnxNodeReader::IntsOf(absl::string_view name,
                                                            size_t i) const {
  if (Has(i)) return IntsIn(i);
  const onnx::AttributeProto* attribute = Attribute(name);
  if (attribute == nullptr) return std::vector<int64_t>();
  return std::vector<int64_t>(attribute->ints().begin(), attribute->ints().end());
}

absl::StatusOr<int64_t> OnnxNodeReader::Axis(int64_t axis, const Shape& shape) const {
  TESSERA_ASSIGN_OR_RETURN(const size_t index, shape.SampleAxis(axis));
  return static_cast<int64_t>(index) + 1;
}

std::string OnnxNodeReader::NewName() const {
  std::string name = node_.output(0);
  for (int i = 2; graph_.Find(name).index >= 0; ++i) name = absl::StrCat(node_.output(0), "_", i);
  return name;
}

Tensor OnnxNodeReader::Layer(absl::string_view op, const std::vector<Tensor>& inputs,
                             google::protobuf::Struct options) {
  last_layer_ = NewName();
  return graph_.Add(last_layer_, op, inputs, options);
}

std::vector<Tensor> OnnxNodeReader::Layers(absl::string_view op, const std::vector<Tensor>& inputs,
                                           google::protobuf::Struct options, size_t outputs) {
  last_layer_ = NewName();
  std::vector<std::string> names;
  for (size_t k = 0; k < outputs; ++k) names.push_back(absl::StrCat(last_layer_, "/", k));
  return graph_.AddNamed(last_layer_, op, inputs, options, names);
}

void OnnxNodeReader::Start(absl::string_view name, std::vector<float> values) {
  starts_[absl::StrCat(last_layer_, "/", name)] = std::move(values);
}

absl::StatusOr<Tensor> OnnxNodeReader::Materialize(size_t i, size_t rank) {
  OnnxValue& value = values_.at(node_.input(static_cast<int>(i)));
  std::vector<int64_t> dims = value.dims;
  if (dims.size() == rank + 1 && dims[0] == 1) dims.erase(dims.begin());
  if (dims.size() > rank) {
    return absl::UnimplementedError("a constant has more dimensions than what it meets");
  }
  dims.insert(dims.begin(), rank - dims.size(), 1);
  if (value.trained) {
    // One that several elementwise nodes read is one Parameter.
    if (value.tensor.index >= 0 && shape(value.tensor).rank() == rank) return value.tensor;
    TESSERA_ASSIGN_OR_RETURN(std::vector<float> numbers, WeightIn(i));
    value.tensor = Layer("Parameter", {}, Options().Set("shape", dims));
    Start("value", std::move(numbers));
    return value.tensor;
  }
  std::vector<float> numbers = value.floats;
  if (value.kind == OnnxValue::Kind::kInts) numbers.assign(value.ints.begin(), value.ints.end());
  google::protobuf::Struct options = Options().Set("shape", dims);
  auto* list = (*options.mutable_fields())["value"].mutable_list_value();
  for (const float number : numbers) list->add_values()->set_number_value(number);
  return Layer("Constant", {}, std::move(options));
}

Tensor OnnxNodeReader::Reshaped(Tensor tensor, const Shape& to) {
  if (shape(tensor) == to) return tensor;
  std::vector<int64_t> dims = {0};
  for (size_t i = 0; i < to.rank(); ++i) dims.push_back(to.dim(i));
  return Layer("Reshape", {tensor}, Options().Set("shape", dims));
}

}  // namespace tessera::worker

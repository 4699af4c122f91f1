// Ops without parameters that ONNX has as they are here: one name, and options that are attributes.
#include "absl/strings/match.h"
#include "worker/dense/ops/ops.h"
#include "worker/onnx/emit.h"
#include "worker/onnx/reads.h"

#define ONNX_NAMESPACE onnx
#include "onnx/defs/schema.h"

namespace tessera::worker {
namespace {

using google::protobuf::Value;

const onnx::OpSchema* SchemaOf(absl::string_view op) {
  return onnx::OpSchemaRegistry::Schema(std::string(op), OnnxWriter::kOpset, onnx::ONNX_DOMAIN);
}

// Of no attribute of ONNX's a float or floats, which whoever reads the file refuses.
OnnxAttribute AttributeOf(const OptionValue& option, const onnx::OpSchema& schema) {
  if (option.value.kind_case() == Value::kListValue) {
    std::vector<int64_t> numbers;
    for (const Value& number : option.value.list_value().values()) {
      numbers.push_back(static_cast<int64_t>(number.number_value()));
    }
    return {option.name, numbers};
  }
  if (option.value.kind_case() == Value::kBoolValue) {
    return {option.name, int64_t{option.value.bool_value()}};
  }
  const auto found = schema.attributes().find(option.name);
  const bool whole =
      found != schema.attributes().end() && found->second.type == onnx::AttributeProto::INT;
  const double number = option.value.number_value();
  return whole ? OnnxAttribute(option.name, static_cast<int64_t>(number))
               : OnnxAttribute(option.name, static_cast<float>(number));
}

absl::Status ReadSame(OnnxNodeReader& r) {
  google::protobuf::Struct options;
  for (const onnx::AttributeProto& attribute : r.node().attribute()) {
    if (absl::StartsWith(attribute.name(), "__")) continue;  // an exporter's own note
    const bool whole = attribute.type() == onnx::AttributeProto::INT;
    (*options.mutable_fields())[attribute.name()].set_number_value(
        whole ? static_cast<double>(attribute.i()) : static_cast<double>(attribute.f()));
  }
  return SetElementwise(
      r, [&](Tensor x) { return r.Layer(r.node().op_type(), {x}, std::move(options)); });
}

}  // namespace

bool IsInOnnx(absl::string_view op) { return SchemaOf(op) != nullptr; }

void EmitSame(Emission& e) {
  std::vector<Shape> shapes;
  for (size_t i = 0; i < e.in.size(); ++i) shapes.push_back(e.in_shape(i));
  // Says which options the op has, and their defaults.
  FindOp(e.node.op_name)->factory(shapes, e.options).IgnoreError();
  std::vector<OnnxAttribute> attributes;
  for (const OptionValue& option : e.options.read()) {
    attributes.push_back(AttributeOf(option, *SchemaOf(e.node.op_name)));
  }
  e.Last(e.node.op_name, e.in, attributes);
}

std::vector<OnnxOp> SameOnnxOps() {
  std::vector<OnnxOp> ops;
  for (const OpEntry& entry : AllOps()) {
    if (entry.elementwise && IsInOnnx(entry.name)) ops.push_back({entry.name, 1, &ReadSame});
  }
  return ops;
}

}  // namespace tessera::worker

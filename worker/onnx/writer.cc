#include "worker/onnx/writer.h"

#include "absl/strings/str_cat.h"
#include "common/version.h"

namespace tessera::worker {
namespace {

onnx::ValueInfoProto ValueInfo(const std::string& name, onnx::TensorProto::DataType type,
                               absl::Span<const int64_t> dims) {
  onnx::ValueInfoProto info;
  info.set_name(name);
  auto* tensor = info.mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(type);
  tensor->mutable_shape()->add_dim()->set_dim_param("batch");
  for (const int64_t dim : dims) {
    auto* added = tensor->mutable_shape()->add_dim();
    if (dim >= 0) {
      added->set_dim_value(dim);
    } else {
      added->set_dim_param(absl::StrCat(name, "_ids"));
    }
  }
  return info;
}

}  // namespace

OnnxAttribute::OnnxAttribute(const std::string& name, int64_t value) {
  proto_.set_name(name);
  proto_.set_type(onnx::AttributeProto::INT);
  proto_.set_i(value);
}
OnnxAttribute::OnnxAttribute(const std::string& name, float value) {
  proto_.set_name(name);
  proto_.set_type(onnx::AttributeProto::FLOAT);
  proto_.set_f(value);
}
OnnxAttribute::OnnxAttribute(const std::string& name, absl::Span<const int64_t> values) {
  proto_.set_name(name);
  proto_.set_type(onnx::AttributeProto::INTS);
  proto_.mutable_ints()->Add(values.begin(), values.end());
}

std::string OnnxWriter::Unique(const std::string& name) {
  std::string unique = name;
  for (int i = 2; !taken_.insert(unique).second; ++i) unique = absl::StrCat(name, "_", i);
  return unique;
}

void OnnxWriter::Input(const std::string& name, onnx::TensorProto::DataType type,
                       absl::Span<const int64_t> dims) {
  taken_.insert(name);
  *graph_.add_input() = ValueInfo(name, type, dims);
}

void OnnxWriter::Output(const std::string& name, absl::Span<const int64_t> dims) {
  taken_.insert(name);
  *graph_.add_output() = ValueInfo(name, onnx::TensorProto::FLOAT, dims);
}

std::string OnnxWriter::Floats(const std::string& name, absl::Span<const int64_t> dims,
                               absl::Span<const float> values) {
  const absl::string_view bytes(reinterpret_cast<const char*>(values.data()),
                                values.size() * sizeof(float));
  for (const onnx::TensorProto& there : graph_.initializer()) {
    if (there.name() != name) continue;
    if (absl::MakeConstSpan(there.dims()) == dims && there.raw_data() == bytes) return name;
  }
  onnx::TensorProto* tensor = graph_.add_initializer();
  tensor->set_name(Unique(name));
  tensor->set_data_type(onnx::TensorProto::FLOAT);
  tensor->mutable_dims()->Add(dims.begin(), dims.end());
  tensor->set_raw_data(bytes.data(), bytes.size());
  return tensor->name();
}

std::string OnnxWriter::Ints(const std::string& name, absl::Span<const int64_t> values) {
  onnx::TensorProto* tensor = graph_.add_initializer();
  tensor->set_name(Unique(name));
  tensor->set_data_type(onnx::TensorProto::INT64);
  tensor->add_dims(static_cast<int64_t>(values.size()));
  tensor->set_raw_data(values.data(), values.size() * sizeof(int64_t));
  return tensor->name();
}

std::string OnnxWriter::Constant(const std::string& name, absl::Span<const int64_t> dims,
                                 absl::Span<const float> values) {
  onnx::NodeProto* node = graph_.add_node();
  node->set_name(Unique(name));
  node->set_op_type("Constant");
  node->add_output(node->name());
  onnx::AttributeProto* attribute = node->add_attribute();
  attribute->set_name("value");
  attribute->set_type(onnx::AttributeProto::TENSOR);
  onnx::TensorProto* tensor = attribute->mutable_t();
  tensor->set_data_type(onnx::TensorProto::FLOAT);
  tensor->mutable_dims()->Add(dims.begin(), dims.end());
  tensor->set_raw_data(values.data(), values.size() * sizeof(float));
  return node->name();
}

void OnnxWriter::Node(const std::string& op, const std::vector<std::string>& inputs,
                      const std::vector<std::string>& outputs,
                      const std::vector<OnnxAttribute>& attributes) {
  onnx::NodeProto* node = graph_.add_node();
  node->set_op_type(op);
  node->set_name(outputs[0]);
  for (const std::string& input : inputs) node->add_input(input);
  for (const std::string& output : outputs) {
    taken_.insert(output);
    node->add_output(output);
  }
  for (const OnnxAttribute& attribute : attributes) *node->add_attribute() = attribute.proto();
}

std::string OnnxWriter::Value(const std::string& name, const std::string& op,
                              const std::vector<std::string>& inputs,
                              const std::vector<OnnxAttribute>& attributes) {
  const std::string output = Unique(name);
  Node(op, inputs, {output}, attributes);
  return output;
}

std::string OnnxWriter::Encode(const std::string& name, const std::string& input,
                               absl::Span<const int64_t> keys, absl::Span<const int64_t> values,
                               int64_t otherwise) {
  const std::string output =
      Value(name, "LabelEncoder", {input},
            {{"keys_int64s", keys}, {"values_int64s", values}, {"default_int64", otherwise}});
  graph_.mutable_node(graph_.node_size() - 1)->set_domain("ai.onnx.ml");
  return output;
}

std::string OnnxWriter::Batch() {
  if (batch_.empty()) {
    batch_ = Value("batch", "Shape", {graph_.input(0).name()},
                   {{"start", int64_t{0}}, {"end", int64_t{1}}});
  }
  return batch_;
}

onnx::ModelProto OnnxWriter::Finish(const std::string& graph_name) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.set_producer_name("tessera");
  model.set_producer_version(kVersion);
  auto* opset = model.add_opset_import();
  opset->set_domain("");
  opset->set_version(kOpset);
  auto* ml = model.add_opset_import();
  ml->set_domain("ai.onnx.ml");
  ml->set_version(kMlOpset);
  *model.mutable_graph() = std::move(graph_);
  model.mutable_graph()->set_name(graph_name);
  return model;
}

}  // namespace tessera::worker

#include "worker/onnx/nodes_within.h"

#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace tessera::worker {

std::string NodesWithin::Input(OnnxValue value) {
  const std::string name = absl::StrCat("input ", inputs_.size());
  graph_.add_input()->set_name(name);
  inputs_.push_back(std::move(value));
  return name;
}

std::string NodesWithin::Ints(const std::vector<int64_t>& ints, const std::vector<int64_t>& dims) {
  const std::string made = Add("Constant", {});
  onnx::AttributeProto& value = *graph_.mutable_node()->rbegin()->add_attribute();
  value.set_name("value");
  value.set_type(onnx::AttributeProto::TENSOR);
  value.mutable_t()->set_data_type(onnx::TensorProto::INT64);
  *value.mutable_t()->mutable_dims() = {dims.begin(), dims.end()};
  *value.mutable_t()->mutable_int64_data() = {ints.begin(), ints.end()};
  return made;
}

std::string NodesWithin::Add(const char* op, const std::vector<std::string>& inputs,
                             const std::vector<OnnxAttribute>& attributes) {
  onnx::NodeProto& node = *graph_.add_node();
  node.set_op_type(op);
  for (const std::string& input : inputs) node.add_input(input);
  for (const OnnxAttribute& attribute : attributes) *node.add_attribute() = attribute.proto();
  node.add_output(absl::StrCat("made ", made_++));
  return node.output(0);
}

std::string NodesWithin::Sum(const std::string& x, int64_t axis) {
  const std::vector<OnnxAttribute> attributes = {{"keepdims", int64_t{0}}};
  if (r_.opset() >= 13) return Add("ReduceSum", {x, Ints({axis}, {1})}, attributes);
  return Add("ReduceSum", {x}, {attributes[0], {"axes", std::vector<int64_t>{axis}}});
}

std::string NodesWithin::Names(const std::string& indices, int64_t size, size_t after) {
  std::vector<int64_t> places(static_cast<size_t>(size)), dims(after + 1, 1);
  dims[0] = size;
  std::iota(places.begin(), places.end(), 0);
  const std::string is = Add("Equal", {indices, Ints(places, dims)});
  std::iota(places.begin(), places.end(), -size);
  return Add("Or", {is, Add("Equal", {indices, Ints(places, dims)})});
}

absl::StatusOr<OnnxValue> NodesWithin::Read(const std::string& part, const std::string& output) {
  graph_.add_output()->set_name(output);
  TESSERA_ASSIGN_OR_RETURN(const std::vector<OnnxValue> made,
                           r_.ReadWithin(graph_, part, std::nullopt, inputs_));
  return made[0];
}

}  // namespace tessera::worker

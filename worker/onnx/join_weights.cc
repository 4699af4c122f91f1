#include "worker/onnx/join_weights.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/onnx/onnx_graph.h"
#include "worker/onnx/reads.h"

namespace tessera::worker {
namespace {

using Kind = OnnxValue::Kind;

// Weights and biases of a recurrence.
bool IsWeight(const onnx::NodeProto& node, int input) {
  const std::string& op = node.op_type();
  return (op == "GRU" || op == "LSTM" || op == "RNN") && input >= 1 && input <= 3;
}

bool OnlyMoves(const std::vector<const onnx::NodeProto*>& nodes) {
  static const auto* const ops =
      new std::set<std::string>{"Concat", "Constant", "Gather",    "Identity", "Reshape",
                                "Slice",  "Squeeze",  "Transpose", "Unsqueeze"};
  return std::all_of(nodes.begin(), nodes.end(),
                     [](const onnx::NodeProto* node) { return ops->contains(node->op_type()); });
}

// Runs nodes on each number's place instead of the number.
class Places {
 public:
  Places(const onnx::GraphProto& file, int64_t opset, GraphBuilder& builder)
      : file_(file), network_{.opset = opset, .graph = builder, .starts = starts_} {
    for (const onnx::TensorProto& tensor : file.initializer()) tensors_[tensor.name()] = &tensor;
  }

  // Whether the name stands for moved numbers of parameters.
  bool Has(const std::string& name) const { return moved_.contains(name); }
  const OnnxValue& Of(const std::string& name) const { return network_.values.at(name); }
  bool Made(const onnx::NodeProto* node) const { return made_.contains(node); }
  const std::vector<float>& numbers() const { return numbers_; }

  // Whether nodes that only move numbers make it.
  bool Make(const std::string& name) {
    const std::vector<const onnx::NodeProto*> nodes = NeededNodes(file_, {name});
    if (nodes.empty() || !OnlyMoves(nodes)) return false;
    OnnxScope scope{.wanted = NamesRead(nodes)};
    scope.wanted.insert(name);
    for (const onnx::NodeProto* node : nodes) {
      if (Made(node)) continue;
      bool moved = false;
      for (const std::string& input : node->input()) {
        if (!Take(input)) return false;
        moved |= Has(input);
      }
      if (!ReadOnnxNode(OnnxNodeReader(*node, scope, network_)).ok()) return false;
      made_.insert(node);
      if (moved) moved_.insert(node->output().begin(), node->output().end());
    }
    return Has(name);
  }

 private:
  // Whether the name stands for something.
  bool Take(const std::string& name) {
    if (network_.values.contains(name)) return true;
    const auto tensor = tensors_.find(name);
    if (tensor == tensors_.end()) return false;
    absl::StatusOr<OnnxValue> value = ValueOfTensor(*tensor->second);
    if (!value.ok()) return false;
    if (value->kind == Kind::kFloats) {
      value->kind = Kind::kInts;
      for (const float number : std::exchange(value->floats, {})) {
        value->ints.push_back(static_cast<int64_t>(numbers_.size()));
        numbers_.push_back(number);
      }
      moved_.insert(name);
    }
    network_.values[name] = *std::move(value);
    return true;
  }

  const onnx::GraphProto& file_;
  ParameterStarts starts_;
  OnnxNetwork network_;
  std::map<std::string, const onnx::TensorProto*> tensors_;
  std::vector<float> numbers_;  // of all parameters
  std::set<std::string> moved_;
  std::set<const onnx::NodeProto*> made_;
};

}  // namespace

void JoinRecurrentWeights(onnx::GraphProto& file, int64_t opset, GraphBuilder& builder) {
  std::vector<const onnx::NodeProto*> nodes;
  for (const onnx::NodeProto& node : file.node()) nodes.push_back(&node);
  nodes = WithThoseWithin(nodes);
  Places places(file, opset, builder);
  // Names made of the same numbers in the same order are one weight; weights are numbered from 1.
  std::map<std::pair<std::vector<int64_t>, std::vector<int64_t>>, size_t> weights;
  std::map<std::string, size_t> weight_of;
  for (const onnx::NodeProto* node : nodes) {
    for (int i = 0; i < node->input_size(); ++i) {
      const std::string& name = node->input(i);
      if (!IsWeight(*node, i) || name.empty() || weight_of.contains(name) || !places.Make(name)) {
        continue;
      }
      const OnnxValue& value = places.Of(name);
      weight_of[name] =
          weights.try_emplace({value.dims, value.ints}, weights.size() + 1).first->second;
    }
  }
  // The weight that each number goes into; 0: something else reads the number too.
  constexpr size_t kNone = SIZE_MAX;
  std::vector<size_t> goes_into(places.numbers().size(), kNone);
  for (const onnx::NodeProto* node : nodes) {
    if (places.Made(node)) continue;
    for (int i = 0; i < node->input_size(); ++i) {
      if (!places.Has(node->input(i))) continue;
      const auto weight = weight_of.find(node->input(i));
      const size_t into = IsWeight(*node, i) && weight != weight_of.end() ? weight->second : 0;
      for (const int64_t place : places.Of(node->input(i)).ints) {
        size_t& found = goes_into[static_cast<size_t>(place)];
        found = found == kNone || found == into ? into : 0;
      }
    }
  }
  std::map<size_t, std::string> joined;  // the initializers
  for (onnx::NodeProto& node : *file.mutable_node()) {
    if (node.output_size() != 1) continue;
    const auto weight = weight_of.find(node.output(0));
    if (weight == weight_of.end()) continue;
    const OnnxValue& value = places.Of(node.output(0));
    const std::set<int64_t> once(value.ints.begin(), value.ints.end());
    const bool alone = std::all_of(once.begin(), once.end(), [&](int64_t place) {
      return goes_into[static_cast<size_t>(place)] == weight->second;
    });
    if (!alone || once.size() != value.ints.size()) continue;
    std::string& name = joined[weight->second];
    if (name.empty()) {
      name = absl::StrCat(node.output(0), "/joined");
      onnx::TensorProto& tensor = *file.add_initializer();
      tensor.set_name(name);
      tensor.set_data_type(onnx::TensorProto::FLOAT);
      tensor.mutable_dims()->Add(value.dims.begin(), value.dims.end());
      for (const int64_t place : value.ints) {
        tensor.add_float_data(places.numbers()[static_cast<size_t>(place)]);
      }
    }
    node.set_op_type("Identity");
    node.clear_attribute();
    node.clear_input();
    node.add_input(name);
  }
}

}  // namespace tessera::worker

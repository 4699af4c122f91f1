#include "worker/dense/graph.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "worker/dense/ops/ops.h"

namespace tessera::worker {
namespace {

// Most floats of a sample in one tensor, and of one parameter: sizes computed from these do not
// overflow.
constexpr size_t kMostFloats = size_t{1} << 30;

// For each tensor: whether it is one of `ends` or one of them depends on it.
std::vector<bool> NeededFor(const std::vector<int32_t>& ends, const Graph& graph) {
  std::vector<bool> needed(graph.tensors().size(), false);
  for (const int32_t end : ends) needed[end] = true;
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node) {
    const bool is_needed = std::any_of(node->outputs.begin(), node->outputs.end(),
                                       [&](int32_t tensor) { return needed[tensor]; });
    if (!is_needed) continue;
    for (const int32_t input : node->inputs) needed[input] = true;
  }
  return needed;
}

absl::Status TooLarge(absl::string_view what, const Shape& shape) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " would have ", shape.floats(), " floats; expected at most 2^30"));
}

// The op, which has as many outputs as there are names for, none larger than it may be.
absl::StatusOr<std::unique_ptr<Op>> MakeOp(const OpEntry& entry, absl::Span<const Shape> inputs,
                                           const google::protobuf::Struct& options,
                                           const std::vector<std::string>& outputs) {
  OptionReader reader(options, "options");
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Op> op, entry.factory(inputs, reader));
  if (op->outputs().size() != outputs.size()) {
    return absl::InvalidArgumentError(absl::StrCat("has ", op->outputs().size(), " outputs, found ",
                                                   outputs.size(), " names for them"));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Shape& shape = op->outputs()[i];
    if (shape.floats() > kMostFloats) return TooLarge(outputs[i], shape);
  }
  for (const ParameterSpec& spec : op->parameters()) {
    Shape shape;
    for (const int64_t dim : spec.shape) shape.Append(dim);
    if (shape.floats() > kMostFloats) return TooLarge(spec.name, shape);
  }
  return op;
}

}  // namespace

bool Graph::IsUsed(int32_t tensor) const {
  if (std::find(ends_.begin(), ends_.end(), tensor) != ends_.end()) return true;
  for (const GraphNode& node : nodes_) {
    if (std::find(node.inputs.begin(), node.inputs.end(), tensor) != node.inputs.end()) return true;
  }
  return false;
}

bool Graph::IsUsedByOutputs(int32_t tensor) const {
  if (std::find(outputs_.begin(), outputs_.end(), tensor) != outputs_.end()) return true;
  return std::any_of(nodes_.begin(), nodes_.end(), [tensor](const GraphNode& node) {
    return !node.training_only &&
           std::find(node.inputs.begin(), node.inputs.end(), tensor) != node.inputs.end();
  });
}

int32_t GraphBuilder::NewTensor(const std::string& name, const Shape& shape, int32_t producer,
                                bool needs_gradient) {
  const auto index = static_cast<int32_t>(graph_->tensors_.size());
  graph_->tensors_.push_back({name, shape, producer, needs_gradient});
  by_name_[name] = index;
  return index;
}

Tensor GraphBuilder::Input(const std::string& name, const Shape& shape, bool needs_gradient) {
  if (by_name_.contains(name)) {
    Fail(absl::InvalidArgumentError(
        absl::StrCat("two inputs of the model are named \"", name, "\"")));
    return {};
  }
  const int32_t index = NewTensor(name, shape, -1, needs_gradient);
  graph_->inputs_.push_back(index);
  return {index};
}

Tensor GraphBuilder::Add(const std::string& name, absl::string_view op,
                         const std::vector<Tensor>& inputs, const google::protobuf::Struct& options,
                         const std::string& parameters_of) {
  return AddNamed(name, op, inputs, options, {name}, parameters_of)[0];
}

std::vector<Tensor> GraphBuilder::AddNamed(const std::string& name, absl::string_view op,
                                           const std::vector<Tensor>& inputs,
                                           const google::protobuf::Struct& options,
                                           const std::vector<std::string>& outputs,
                                           const std::string& parameters_of) {
  std::vector<Tensor> tensors(outputs.size());
  if (!status_.ok()) return tensors;
  Fail(TryAdd(name, op, inputs, options, outputs, parameters_of));
  if (!status_.ok()) return tensors;
  const GraphNode& node = graph_->nodes_.back();
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i] = {node.outputs[i]};
  return tensors;
}

absl::Status GraphBuilder::CheckNames(const std::vector<std::string>& outputs) const {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string& output = outputs[i];
    if (output.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("its output ", i, " has no name"));
    }
    if (std::find(outputs.begin(), outputs.begin() + static_cast<int64_t>(i), output) !=
        outputs.begin() + static_cast<int64_t>(i)) {
      return absl::InvalidArgumentError(
          absl::StrCat("two of its outputs are named \"", output, "\""));
    }
    if (by_name_.contains(output)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the name \"", output, "\" is taken by an input or an output of an earlier layer"));
    }
  }
  return absl::OkStatus();
}

void GraphBuilder::AddTensors(const std::vector<std::string>& outputs, GraphNode& node) {
  const auto producer = static_cast<int32_t>(graph_->nodes_.size());
  bool needs_gradient = !node.op->parameters().empty();
  for (const int32_t input : node.inputs) {
    needs_gradient |= node.op->PassesGradient() && graph_->tensors_[input].needs_gradient;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    node.outputs.push_back(NewTensor(outputs[i], node.op->outputs()[i], producer, needs_gradient));
  }
}

void GraphBuilder::AddParameters(GraphNode& node) {
  for (const ParameterSpec& spec : node.op->parameters()) {
    GraphParameter parameter{absl::StrCat(node.name, "/", spec.name), spec};
    parameter.floats = 1;
    for (const int64_t dim : spec.shape) parameter.floats *= static_cast<uint64_t>(dim);
    uint64_t& total = spec.trained ? graph_->trained_floats_ : graph_->statistics_floats_;
    parameter.offset = total;
    total += parameter.floats;
    node.parameters.push_back(static_cast<int32_t>(graph_->parameters_.size()));
    graph_->parameters_.push_back(std::move(parameter));
  }
}

absl::Status GraphBuilder::TryAdd(const std::string& name, absl::string_view op,
                                  const std::vector<Tensor>& inputs,
                                  const google::protobuf::Struct& options,
                                  const std::vector<std::string>& outputs,
                                  const std::string& parameters_of) {
  const std::string label = absl::StrCat("layer \"", name, "\"");
  const OpEntry* entry = FindOp(op);
  if (entry == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(label, ": unknown op \"", op, "\"", KnownOps(op)));
  }
  TESSERA_RETURN_IF_ERROR(WithContext(CheckNames(outputs), label));
  GraphNode node;
  node.name = name;
  node.op_name = entry->name;
  node.options = options;
  std::vector<Shape> shapes;
  std::vector<std::string> described;
  for (const Tensor input : inputs) {
    if (input.index < 0) {
      return absl::InternalError(absl::StrCat(label, ": one of its inputs was never made"));
    }
    node.inputs.push_back(input.index);
    const GraphTensor& tensor = graph_->tensors_[input.index];
    shapes.push_back(tensor.shape);
    described.push_back(absl::StrCat(tensor.name, " ", tensor.shape.ToString()));
  }
  const std::string call =
      absl::StrCat(label, ", ", entry->name, "(", absl::StrJoin(described, ", "), ")");
  absl::StatusOr<std::unique_ptr<Op>> made = MakeOp(*entry, shapes, options, outputs);
  if (!made.ok()) return WithContext(made.status(), call);
  node.op = *std::move(made);
  if (!parameters_of.empty()) {
    TESSERA_RETURN_IF_ERROR(WithContext(ShareParameters(parameters_of, node), call));
  }
  AddTensors(outputs, node);
  if (node.parameters_of.empty()) AddParameters(node);
  graph_->nodes_.push_back(std::move(node));
  return absl::OkStatus();
}

absl::Status GraphBuilder::ShareParameters(const std::string& of, GraphNode& node) const {
  const auto text = [](const Op& op) {
    std::vector<std::string> specs;
    for (const ParameterSpec& spec : op.parameters()) {
      specs.push_back(absl::StrCat(spec.name, " [", absl::StrJoin(spec.shape, ", "), "]"));
    }
    return specs.empty() ? std::string("none") : absl::StrJoin(specs, ", ");
  };
  for (const GraphNode& other : graph_->nodes_) {
    if (other.name != of) continue;
    if (text(*other.op) != text(*node.op) || other.parameters.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("parameters_of: \"", of,
                                                     "\" has the parameters ", text(*other.op),
                                                     "; expected ", text(*node.op)));
    }
    node.parameters = other.parameters;
    node.parameters_of = of;
    return absl::OkStatus();
  }
  std::vector<std::string> names;
  for (const GraphNode& other : graph_->nodes_) names.push_back(other.name);
  return absl::InvalidArgumentError(
      absl::StrCat("parameters_of: no earlier layer \"", of, "\"", KnownNames(of, names)));
}

void GraphBuilder::AddLoss(Tensor tensor, float weight) {
  if (!status_.ok()) return;
  if (!std::isfinite(weight) || weight <= 0) {
    return Fail(absl::InvalidArgumentError(
        absl::StrCat("a loss has the weight ", weight, ", expected a number above 0")));
  }
  graph_->losses_.push_back({tensor.index, weight});
}

Tensor GraphBuilder::Find(absl::string_view name) const {
  const auto it = by_name_.find(std::string(name));
  return {it == by_name_.end() ? -1 : it->second};
}

const Shape& GraphBuilder::shape(Tensor tensor) const {
  static const Shape none;
  return tensor.index < 0 ? none : graph_->tensors_[tensor.index].shape;
}

std::vector<std::string> GraphBuilder::TensorNames() const {
  std::vector<std::string> names;
  for (const GraphTensor& tensor : graph_->tensors_) names.push_back(tensor.name);
  return names;
}

void GraphBuilder::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

absl::Status GraphBuilder::CheckOutput(const Output& output) const {
  if (output.tensor.index < 0) {
    return absl::InvalidArgumentError(absl::StrCat(output.owner, " has no output"));
  }
  const GraphTensor& tensor = graph_->tensors_[output.tensor.index];
  const std::string which = absl::StrCat(output.owner, "'s output \"", tensor.name, "\"");
  const Shape& shape = tensor.shape;
  if (output.classes && (shape.rank() != 1 || shape.dim(0) < 2)) {
    return absl::InvalidArgumentError(absl::StrCat(which, " has the shape ", shape.ToString(),
                                                   ", expected [batch, classes], one logit for "
                                                   "each of 2 or more classes"));
  }
  if (output.count > 0 && shape != Shape{output.count}) {
    return absl::InvalidArgumentError(absl::StrCat(which, " has the shape ", shape.ToString(),
                                                   ", expected [batch, ", output.count,
                                                   "], one logit for each class"));
  }
  if (!output.classes && shape != Shape{1}) {
    return absl::InvalidArgumentError(absl::StrCat(
        which, " has the shape ", shape.ToString(), ", expected [batch, 1], one logit a sample",
        shape.rank() == 1 ? " (several are of the loss softmax_cross_entropy)" : ""));
  }
  if (tensor.producer < 0) {
    return absl::InvalidArgumentError(absl::StrCat(which, " is one of its inputs"));
  }
  // Statistics ask for gradients, too, and are not trained by them.
  const bool trains =
      graph_->trained_floats_ > 0 ||
      std::any_of(graph_->inputs_.begin(), graph_->inputs_.end(),
                  [this](int32_t input) { return graph_->tensors_[input].needs_gradient; });
  if (!tensor.needs_gradient || !trains) {
    return absl::InvalidArgumentError(
        absl::StrCat(which, " depends on nothing that can be trained"));
  }
  return absl::OkStatus();
}

int32_t GraphBuilder::Viewed(int32_t tensor) const {
  int32_t producer = graph_->tensors_[tensor].producer;
  while (producer >= 0 && graph_->nodes_[producer].op->IsView()) {
    tensor = graph_->nodes_[producer].inputs[0];
    producer = graph_->tensors_[tensor].producer;
  }
  return tensor;
}

void GraphBuilder::MarkTrainingOnly() {
  const std::vector<bool> needed = NeededFor(graph_->outputs_, *graph_);
  for (GraphNode& node : graph_->nodes_) {
    node.training_only = std::none_of(node.outputs.begin(), node.outputs.end(),
                                      [&](int32_t tensor) { return needed[tensor]; });
  }
}

void GraphBuilder::DropUnread(std::vector<Output>& outputs) {
  Graph& graph = *graph_;
  std::vector<int32_t> ends;
  for (const Output& output : outputs) {
    if (output.tensor.index >= 0) ends.push_back(output.tensor.index);
  }
  for (const GraphLoss& loss : graph.losses_) ends.push_back(loss.tensor);
  std::vector<bool> needed = NeededFor(ends, graph);
  std::vector<GraphNode> nodes;
  for (GraphNode& node : std::exchange(graph.nodes_, {})) {
    const bool is_needed = std::any_of(node.outputs.begin(), node.outputs.end(),
                                       [&](int32_t tensor) { return needed[tensor]; });
    if (!is_needed) continue;
    for (const int32_t output : node.outputs) needed[output] = true;
    nodes.push_back(std::move(node));
  }
  std::vector<int32_t> place(graph.tensors_.size(), -1);
  std::vector<GraphTensor> tensors;
  for (size_t t = 0; t < place.size(); ++t) {
    if (!needed[t] && graph.tensors_[t].producer >= 0) continue;
    place[t] = static_cast<int32_t>(tensors.size());
    tensors.push_back(std::move(graph.tensors_[t]));
  }
  graph.tensors_ = std::move(tensors);
  const std::vector<GraphParameter> parameters = std::exchange(graph.parameters_, {});
  std::vector<int32_t> parameter_place(parameters.size(), -1);
  std::vector<std::string> owners(parameters.size());  // nodes
  graph.trained_floats_ = graph.statistics_floats_ = 0;
  for (GraphNode& node : nodes) {
    for (int32_t& input : node.inputs) input = place[input];
    for (int32_t& output : node.outputs) {
      output = place[output];
      graph.tensors_[output].producer = static_cast<int32_t>(graph.nodes_.size());
    }
    // If the owner of parameters is left out, the first node that shared them becomes the owner.
    node.parameters_of.clear();
    for (int32_t& index : node.parameters) {
      int32_t& at = parameter_place[index];
      if (at >= 0) {
        node.parameters_of = owners[index];
      } else {
        owners[index] = node.name;
        at = static_cast<int32_t>(graph.parameters_.size());
        graph.parameters_.push_back(parameters[index]);
        GraphParameter& parameter = graph.parameters_.back();
        uint64_t& total = parameter.spec.trained ? graph.trained_floats_ : graph.statistics_floats_;
        parameter.offset = total;
        total += parameter.floats;
      }
      index = at;
    }
    graph.nodes_.push_back(std::move(node));
  }
  for (Output& output : outputs) {
    if (output.tensor.index >= 0) output.tensor.index = place[output.tensor.index];
  }
  for (GraphLoss& loss : graph.losses_) loss.tensor = place[loss.tensor];
}

absl::StatusOr<std::unique_ptr<const Graph>> GraphBuilder::Build(std::vector<Output> outputs) {
  TESSERA_RETURN_IF_ERROR(status_);
  if (leaves_out_unread_) DropUnread(outputs);
  std::vector<std::string> names;
  std::vector<int32_t> viewed;
  // One loss writes the gradient of each end, so ends must differ.
  const auto check = [&](const Output& end) -> absl::Status {
    TESSERA_RETURN_IF_ERROR(CheckOutput(end));
    const int32_t memory = Viewed(end.tensor.index);
    if (std::find(viewed.begin(), viewed.end(), memory) != viewed.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(end.owner, "'s output \"", graph_->tensors_[end.tensor.index].name,
                       "\" is that of an earlier task too; each needs one of its own"));
    }
    viewed.push_back(memory);
    graph_->ends_.push_back(end.tensor.index);
    return absl::OkStatus();
  };
  for (const Output& output : outputs) {
    TESSERA_RETURN_IF_ERROR(check(output));
    const std::vector<bool> needed = NeededFor({output.tensor.index}, *graph_);
    bool reads = false;
    for (size_t t = 0; t < needed.size(); ++t) {
      reads |= needed[t] && graph_->tensors_[t].producer < 0;
    }
    if (!reads) {
      return absl::InvalidArgumentError(
          absl::StrCat(output.owner, "'s output \"", graph_->tensors_[output.tensor.index].name,
                       "\" is the same for every sample: no column of the data reaches it"));
    }
    graph_->outputs_.push_back(output.tensor.index);
    names.push_back(absl::StrCat("\"", graph_->tensors_[output.tensor.index].name, "\""));
  }
  for (const GraphLoss& loss : graph_->losses_) {
    TESSERA_RETURN_IF_ERROR(check({{loss.tensor}, false, "an auxiliary loss"}));
  }
  for (const GraphNode& node : graph_->nodes_) {
    if (std::none_of(node.outputs.begin(), node.outputs.end(),
                     [&](int32_t t) { return graph_->IsUsed(t); })) {
      return absl::InvalidArgumentError(absl::StrCat(
          "layer \"", node.name, "\": no other layer reads its output and it is not the model's (",
          absl::StrJoin(names, ", "), names.size() == 1 ? " is" : " are",
          "): remove it, or connect it"));
    }
  }
  MarkTrainingOnly();
  return std::unique_ptr<const Graph>(std::move(graph_));
}

}  // namespace tessera::worker

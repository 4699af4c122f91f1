#include "worker/onnx/onnx_graph.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera::worker {
namespace {

using Nodes = std::vector<const onnx::NodeProto*>;

// Moves the constants of `from`, which is within `to`, and of the graphs within it.
void Hoist(onnx::GraphProto& from, std::set<std::string>& taken, onnx::GraphProto& to) {
  std::map<std::string, std::string> renamed;
  const auto move = [&](std::string& name) {
    std::string free = name;
    for (int i = 2; !taken.insert(free).second; ++i) free = absl::StrCat(name, "_", i);
    if (free != name) renamed[name] = free;
    name = free;
  };
  for (auto& tensor : *from.mutable_initializer()) {
    move(*tensor.mutable_name());
    to.add_initializer()->Swap(&tensor);
  }
  from.clear_initializer();
  onnx::GraphProto kept;
  for (auto& node : *from.mutable_node()) {
    const bool constant = node.op_type() == "Constant" && node.output_size() == 1;
    if (constant) move(*node.mutable_output(0));
    (constant ? to : kept).add_node()->Swap(&node);
  }
  from.mutable_node()->Swap(kept.mutable_node());
  if (!renamed.empty()) {
    RenameAll(from, [&](std::string& name) {
      if (const auto to = renamed.find(name); to != renamed.end()) name = to->second;
    });
  }
  for (auto& node : *from.mutable_node()) {
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) Hoist(*attribute.mutable_g(), taken, to);
    }
  }
}

void AddIdentity(const std::string& from, const std::string& to, Nodes& nodes,
                 std::deque<onnx::NodeProto>& made) {
  if (from == to || from.empty() || to.empty()) return;
  onnx::NodeProto& node = made.emplace_back();
  node.set_op_type("Identity");
  node.add_input(from);
  node.add_output(to);
  nodes.push_back(&node);
}

}  // namespace

void RenameAll(onnx::GraphProto& graph, const std::function<void(std::string&)>& rename) {
  for (auto& input : *graph.mutable_input()) rename(*input.mutable_name());
  for (auto& output : *graph.mutable_output()) rename(*output.mutable_name());
  for (auto& tensor : *graph.mutable_initializer()) rename(*tensor.mutable_name());
  for (auto& node : *graph.mutable_node()) {
    for (std::string& name : *node.mutable_input()) rename(name);
    for (std::string& name : *node.mutable_output()) rename(name);
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) RenameAll(*attribute.mutable_g(), rename);
    }
  }
}

void HoistConstants(onnx::GraphProto& graph) {
  onnx::GraphProto found;
  std::set<std::string> taken;
  for (const auto& input : graph.input()) taken.insert(input.name());
  for (const auto& tensor : graph.initializer()) taken.insert(tensor.name());
  for (auto& node : *graph.mutable_node()) {
    taken.insert(node.output().begin(), node.output().end());
  }
  for (auto& node : *graph.mutable_node()) {
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) Hoist(*attribute.mutable_g(), taken, found);
    }
  }
  for (auto& tensor : *found.mutable_initializer()) graph.add_initializer()->Swap(&tensor);
  if (found.node_size() == 0) return;
  for (auto& node : *graph.mutable_node()) found.add_node()->Swap(&node);  // after the constants
  graph.mutable_node()->Swap(found.mutable_node());
}

std::vector<const onnx::GraphProto*> GraphsWithin(const onnx::NodeProto& node) {
  std::vector<const onnx::GraphProto*> graphs;
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_g()) graphs.push_back(&attribute.g());
  }
  return graphs;
}

Nodes WithThoseWithin(const Nodes& nodes) {
  Nodes all;
  for (const onnx::NodeProto* node : nodes) {
    all.push_back(node);
    for (const onnx::GraphProto* graph : GraphsWithin(*node)) {
      Nodes within;
      for (const onnx::NodeProto& inner : graph->node()) within.push_back(&inner);
      within = WithThoseWithin(within);
      all.insert(all.end(), within.begin(), within.end());
    }
  }
  return all;
}

std::set<std::string> NamesRead(const Nodes& nodes) {
  std::set<std::string> names;
  for (const onnx::NodeProto* node : WithThoseWithin(nodes)) {
    names.insert(node->input().begin(), node->input().end());
    for (const onnx::GraphProto* graph : GraphsWithin(*node)) {
      for (const auto& output : graph->output()) names.insert(output.name());
    }
  }
  names.erase("");
  return names;
}

Nodes NeededNodes(const onnx::GraphProto& graph, const std::vector<std::string>& names) {
  std::set<std::string> needed(names.begin(), names.end());
  Nodes nodes;
  for (int i = graph.node_size() - 1; i >= 0; --i) {
    const onnx::NodeProto& node = graph.node(i);
    const bool used = std::any_of(node.output().begin(), node.output().end(),
                                  [&](const std::string& name) { return needed.contains(name); });
    if (!used) continue;
    needed.merge(NamesRead({&node}));
    nodes.push_back(&node);
  }
  std::reverse(nodes.begin(), nodes.end());
  return nodes;
}

Nodes Unfolded(const Nodes& nodes, std::deque<onnx::NodeProto>& made) {
  Nodes all;
  for (const onnx::NodeProto* node : nodes) {
    const std::vector<const onnx::GraphProto*> graphs = GraphsWithin(*node);
    if (graphs.empty()) all.push_back(node);
    for (const onnx::GraphProto* graph : graphs) {
      // The node's last inputs are the graph's last inputs; likewise the first outputs, of which a
      // loop's graph has one more.
      for (int i = 1; i <= std::min(node->input_size(), graph->input_size()); ++i) {
        AddIdentity(node->input(node->input_size() - i),
                    graph->input(graph->input_size() - i).name(), all, made);
      }
      Nodes within;
      for (const onnx::NodeProto& inner : graph->node()) within.push_back(&inner);
      within = Unfolded(within, made);
      all.insert(all.end(), within.begin(), within.end());
      const int more = node->op_type() == "Loop" ? 1 : 0;
      for (int i = 0; i < node->output_size() && i + more < graph->output_size(); ++i) {
        AddIdentity(graph->output(i + more).name(), node->output(i), all, made);
      }
    }
  }
  return all;
}

onnx::GraphProto Renamed(const onnx::GraphProto& graph, const std::string& prefix) {
  std::set<std::string> own;
  for (const auto& input : graph.input()) own.insert(input.name());
  for (const auto& node : graph.node()) own.insert(node.output().begin(), node.output().end());
  own.erase("");
  onnx::GraphProto renamed = graph;
  RenameAll(renamed, [&](std::string& name) {
    if (own.contains(name)) name = absl::StrCat(prefix, name);
  });
  return renamed;
}

}  // namespace tessera::worker

#pragma once

#include <deque>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "worker/onnx/onnx_proto.h"

namespace tessera::worker {

// Helpers for a file's graph and the graphs within nodes of control flow (If, Loop, Scan), which
// read names of the graphs around them. Borrowed nodes live as long as their graph does.

// Moves initializers and Constant nodes of graphs within nodes into the outermost graph, under
// unused names, so that all rounds of a loop share them.
void HoistConstants(onnx::GraphProto& graph);

// The nodes that the names need, in the graph's order, which is topological.
std::vector<const onnx::NodeProto*> NeededNodes(const onnx::GraphProto& graph,
                                                const std::vector<std::string>& names);

// The graphs within a node.
std::vector<const onnx::GraphProto*> GraphsWithin(const onnx::NodeProto& node);

// These nodes and those within them.
std::vector<const onnx::NodeProto*> WithThoseWithin(
    const std::vector<const onnx::NodeProto*>& nodes);
// All names that the nodes read.
std::set<std::string> NamesRead(const std::vector<const onnx::NodeProto*>& nodes);

// The nodes, each followed by the nodes within it (once), with Identity nodes for names that change
// on the way in or out. `made` holds the Identity nodes.
std::vector<const onnx::NodeProto*> Unfolded(const std::vector<const onnx::NodeProto*>& nodes,
                                             std::deque<onnx::NodeProto>& made);

// Replaces every name of a value in the graph, and in the graphs within, by rename(name).
void RenameAll(onnx::GraphProto& graph, const std::function<void(std::string&)>& rename);
// The graph with `prefix` before all names that it makes itself.
onnx::GraphProto Renamed(const onnx::GraphProto& graph, const std::string& prefix);

}  // namespace tessera::worker

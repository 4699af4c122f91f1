#pragma once

#include <deque>
#include <set>
#include <string>
#include <vector>

#include "worker/onnx/onnx_proto.h"

namespace tessera::worker {

// Graphs of a file, and those within nodes of control flow (If, Loop, Scan), which read names of
// the graphs around them. Borrowed nodes live as long as their graph does.

// Puts initializers and Constant nodes of the graphs within nodes into the outermost one, under
// names that nothing else has, so that every round of a loop has the same.
void HoistConstants(onnx::GraphProto& graph);

// The nodes that the names need, in the graph's order, which is one of computation.
std::vector<const onnx::NodeProto*> NeededNodes(const onnx::GraphProto& graph,
                                                const std::vector<std::string>& names);

// The graphs within a node.
std::vector<const onnx::GraphProto*> GraphsWithin(const onnx::NodeProto& node);

// Of these nodes and those within them.
std::vector<const onnx::NodeProto*> WithThoseWithin(
    const std::vector<const onnx::NodeProto*>& nodes);
// All names that they read.
std::set<std::string> NamesRead(const std::vector<const onnx::NodeProto*>& nodes);

// The nodes, and after each the nodes within it once, with Identity nodes, which `made` keeps, for
// what goes in and comes out under another name.
std::vector<const onnx::NodeProto*> Unfolded(const std::vector<const onnx::NodeProto*>& nodes,
                                             std::deque<onnx::NodeProto>& made);

// The graph under other names for all that it makes itself: `prefix` before each.
onnx::GraphProto Renamed(const onnx::GraphProto& graph, const std::string& prefix);

}  // namespace tessera::worker

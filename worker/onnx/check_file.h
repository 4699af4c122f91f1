#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "worker/onnx/onnx_proto.h"

namespace tessera::worker {

// Checks for what makes a file ambiguous, or would be ignored. INVALID_ARGUMENT names it.

// Checks that each name of the graph is made once: by one node, or as an initializer or an input
// (in old files as both).
absl::Status CheckNamesMadeOnce(const onnx::GraphProto& graph);

// Checks the node against ONNX's own definition of its op: names and types of attributes, required
// attributes, number of inputs. Checks only types for an opset that Debian's library does not know,
// and nothing for ops that ONNX does not define.
absl::Status CheckNode(const onnx::NodeProto& node, int64_t opset);

}  // namespace tessera::worker

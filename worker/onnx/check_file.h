#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "worker/onnx/onnx_proto.h"

namespace tessera::worker {

// What makes a file ambiguous, or says something that nobody would read. INVALID_ARGUMENT names it.

// Each name of the graph is made once: by one node, or it is an initializer or an input (or, in old
// files, both).
absl::Status CheckNamesMadeOnce(const onnx::GraphProto& graph);

// The node has what ONNX's own definition of its op has: attributes of those names and types, all
// that are required, and no more inputs. Of an opset that Debian's library does not know, types
// alone; of ops that ONNX does not define, nothing.
absl::Status CheckNode(const onnx::NodeProto& node, int64_t opset);

}  // namespace tessera::worker

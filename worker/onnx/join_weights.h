#pragma once

#include "worker/dense/graph.h"
#include "worker/onnx/onnx_proto.h"

namespace tessera::worker {

// Exporters that fold no constants leave a recurrence's weights as nodes that join parts of
// parameters. Replaces these by initializers with the same numbers in the same order, if each
// number goes into only one of them and nothing else reads it. Adds nothing to `builder`.
void JoinRecurrentWeights(onnx::GraphProto& file, int64_t opset, GraphBuilder& builder);

}  // namespace tessera::worker

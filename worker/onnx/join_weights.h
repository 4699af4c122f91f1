#pragma once

#include "worker/dense/graph.h"
#include "worker/onnx/onnx_proto.h"

namespace tessera::worker {

// Exporters that fold no constants leave a recurrence's weights as parts of parameters, put
// together anew by nodes. Makes them initializers, with the same numbers in that order, where each
// number goes into one of them alone and nobody else reads it. `builder`: nothing is added to it.
void JoinRecurrentWeights(onnx::GraphProto& file, int64_t opset, GraphBuilder& builder);

}  // namespace tessera::worker

#pragma once

#include "absl/status/status.h"
#include "worker/onnx/onnx_proto.h"

namespace tessera::worker {

// Puts the nodes of the file's own functions (ModelProto.functions) in the place of the nodes that
// call them, also within graphs of nodes and within functions. What a function makes inside is
// named after the call's first output, "OUTPUT/NAME". INVALID_ARGUMENT: a call has more inputs or
// outputs than its function; two functions have one name, call each other in a circle, become
// too much, or give back an input. UNIMPLEMENTED: a function that is called is of another opset
// than the file.
absl::Status InlineFunctions(onnx::ModelProto& file);

}  // namespace tessera::worker

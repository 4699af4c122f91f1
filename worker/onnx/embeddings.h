#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "worker/dense/model.h"
#include "worker/onnx/export.h"
#include "worker/onnx/writer.h"

namespace tessera::worker {

// Writes the inputs of an exported file and the nodes that compute the dense graph's inputs from
// them. Returns the ONNX names of the dense graph's inputs, by tensor.
absl::StatusOr<std::map<int32_t, std::string>> WriteInputs(
    const v1::JobSpec& spec, const Model& model, const std::map<std::string, InlineTable>& tables,
    OnnxWriter& onnx);

}  // namespace tessera::worker

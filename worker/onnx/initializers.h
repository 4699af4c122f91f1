#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "worker/onnx/onnx_value.h"

namespace tessera::worker {

// Which numbers of a file are parameters.

// The names that a gradient of `outputs` reaches, by the nodes that they need: not what is only
// compared, rounded or a condition.
std::set<std::string> NamesWithGradient(const std::vector<const onnx::NodeProto*>& nodes,
                                        const std::vector<std::string>& outputs);

// Whether the initializer is what an exporter makes of numbers that stand in the network's code, by
// the name that it gives them; `producer`: of the file.
bool IsOfCode(const OnnxValue& value, absl::string_view name, absl::string_view producer);

}  // namespace tessera::worker

#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "worker/onnx/onnx_value.h"

namespace tessera::worker {

// Decides which numbers of a file are parameters.

// The names that a gradient of `outputs` reaches through the nodes that they need. It does not pass
// comparisons, rounding and conditions; nor exponents and bounds, unless the names of `producer`,
// who wrote the file, tell which are parameters.
std::set<std::string> NamesWithGradient(const std::vector<const onnx::NodeProto*>& nodes,
                                        const std::vector<std::string>& outputs,
                                        absl::string_view producer);

// The names of `file` that no parameter is a part of, where its metadata tell: PyTorch's exporter
// of torch.export writes what each initializer was, and of what it computed those that it computed.
std::set<std::string> NamesOfCode(const onnx::GraphProto& file);

// Whether an exporter made the initializer of numbers in the network's code, judged by its name.
bool IsOfCode(const OnnxValue& value, absl::string_view name, absl::string_view producer);

// Whether the input of a normalisation, its scale (`number` 1) or shift (0), is there only because
// the op of ONNX has one: it is that number everywhere, and a constant or, by the name that the
// exporter gave it, none of the network's parameters.
bool StandsForNone(const OnnxValue& value, float number, absl::string_view producer);

}  // namespace tessera::worker

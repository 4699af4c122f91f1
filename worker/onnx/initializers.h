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

// Names of `file` whose metadata tell whether a parameter is a part of them: PyTorch's exporter of
// torch.export writes what each initializer was, and of what it computed those that it computed.
struct ToldNames {
  std::set<std::string> of_code;        // none is
  std::set<std::string> of_parameters;  // computed of one, or of a buffer, which it does not tell
};
ToldNames NamesTold(const onnx::GraphProto& file);

// Whether an exporter made the initializer of numbers in the network's code, judged by its name.
bool IsOfCode(const OnnxValue& value, absl::string_view name, absl::string_view producer);

// Whether the input of a normalisation, its scale (`number` 1) or shift (0), is there only because
// the op of ONNX has one: it is that number everywhere, and a constant or, by the name that the
// exporter gave it, none of the network's parameters.
bool StandsForNone(const OnnxValue& value, float number, absl::string_view producer);

}  // namespace tessera::worker

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/config/source_map.h"
#include "google/protobuf/message.h"

namespace tessera {

// Merges YAML, a mapping whose keys are the fields of `message`, into it. INVALID_ARGUMENT is
// "FILE:LINE:COLUMN: PATH: what is wrong and what was expected". `expected` tells messages what the
// file should hold: "a job (deploy/jobs/ has examples)". Pure; `file` is for messages only.
absl::Status ParseYaml(absl::string_view text, absl::string_view file, absl::string_view expected,
                       google::protobuf::Message& message, SourceMap& sources);

// Reads the text of such a file. NOT_FOUND: no such file; INVALID_ARGUMENT: a folder, or above 1
// MiB.
absl::StatusOr<std::string> ReadYamlFile(const std::string& path, absl::string_view expected);

}  // namespace tessera

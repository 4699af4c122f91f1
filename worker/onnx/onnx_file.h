#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "tessera/v1/job.pb.h"

namespace tessera::worker {

// Reads the file spec.model.onnx_file below `data_root`, and puts numbers from files beside it (as
// PyTorch exports them) into it. Empty if the model has no file. Errors name the field: NOT_FOUND,
// INVALID_ARGUMENT (a path that leads out of `data_root`, a file beside it that is too short),
// RESOURCE_EXHAUSTED (above 2 GB together).
absl::StatusOr<std::string> ReadOnnxFile(const v1::JobSpec& spec, FileSystem& fs,
                                         const std::string& data_root);

}  // namespace tessera::worker

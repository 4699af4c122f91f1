#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tessera/v1/job.pb.h"
#include "worker/dense/model.h"

namespace tessera::worker {

// Makes the zoo model, the layers or the ONNX file that spec.model names. `dense_width` is the
// width of the reader's batches, the sum of the dense columns' widths; `onnx_file` is the content
// of spec.model.onnx_file (worker/onnx/onnx_file.h) and empty for other models. INVALID_ARGUMENT
// and UNIMPLEMENTED name the field that is wrong.
absl::StatusOr<std::unique_ptr<Model>> NewModel(const v1::JobSpec& spec, uint32_t dense_width,
                                                absl::string_view onnx_file = "");

}  // namespace tessera::worker

#pragma once

#include "absl/status/status.h"
#include "tessera/v1/checkpoint.pb.h"
#include "tessera/v1/job.pb.h"

namespace tessera::master {

// Whether a job may start from a checkpoint. Resuming: the same tables with the same dims and kinds
// of optimizer. Warm: tables of the same name have the same dim. INVALID_ARGUMENT names the field
// that differs.
absl::Status CheckStart(const v1::JobSpec& spec, const v1::CheckpointManifest& manifest, bool warm);

}  // namespace tessera::master

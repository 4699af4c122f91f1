#pragma once

#include <string>

#include "absl/status/status.h"
#include "tessera/v1/checkpoint.pb.h"
#include "tessera/v1/job.pb.h"
#include "tessera/v1/job_service.pb.h"

namespace tessera::master {

// Whether a job may start from a checkpoint. Always: the same model on the same dense and sparse
// columns, for the dense parameters have no names, only places. Besides, resuming and predicting:
// the same tables with the same dims and kinds of optimizer; resuming within an epoch: the same
// order of training; predicting: nothing is PreparedOtherwise; resuming: something is left to
// train. Warm: tables of the same name have the same dim. INVALID_ARGUMENT names the field that
// differs.
absl::Status CheckStart(const v1::JobSpec& spec, const v1::CheckpointManifest& manifest,
                        v1::Task task, bool warm);

// How a job, of the same model, makes that model's inputs from fields, or predictions from its
// output, otherwise than the checkpoint's job `before` did: the first such field. Empty: nowhere.
std::string PreparedOtherwise(const v1::JobSpec& spec, const v1::JobSpec& before);

}  // namespace tessera::master

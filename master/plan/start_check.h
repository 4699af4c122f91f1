#pragma once

#include <string>

#include "absl/status/status.h"
#include "tessera/v1/checkpoint.pb.h"
#include "tessera/v1/job.pb.h"
#include "tessera/v1/job_service.pb.h"

namespace tessera::master {

// Whether a job may start from a checkpoint. INVALID_ARGUMENT names the field that differs.
//   always                the same model on the same dense and sparse columns, since the dense
//                         parameters have no names, only places
//   resuming, measuring   the same tables with the same dims and kinds of optimizer
//   resuming              something is left to train; within an epoch, the same order of training
//   measuring             nothing is PreparedOtherwise (measuring: the task predicts or evaluates)
//   warm                  tables of the same name have the same dim
absl::Status CheckStart(const v1::JobSpec& spec, const v1::CheckpointManifest& manifest,
                        v1::Task task, bool warm);

// The first difference in how a job makes its model's inputs from fields, or predictions from its
// output, and how the checkpoint's job `before`, of the same model, did. Empty: none.
std::string PreparedOtherwise(const v1::JobSpec& spec, const v1::JobSpec& before);

}  // namespace tessera::master

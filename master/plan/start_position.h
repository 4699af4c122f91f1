#pragma once

#include "tessera/v1/checkpoint.pb.h"
#include "tessera/v1/job_service.pb.h"

namespace tessera::master {

// Whose checkpoint a run begins with.
enum class StartOf {
  kOther,  // another job's: start.checkpoint
  kOwn,    // the job's own: it goes on
  kFinal,  // the model that the job's training has left behind, which is only measured
};

// The position at which a run of the job begins: what of the checkpoint's own it takes up. `job`:
// the job's status.
v1::Position StartPosition(const v1::JobStatus& job, const v1::CheckpointManifest& manifest,
                           StartOf of);

}  // namespace tessera::master

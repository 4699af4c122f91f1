#include "master/plan/start_position.h"

#include "common/job/defaults.h"
#include "common/job/job_state.h"
#include "master/plan/training_plan.h"

namespace tessera::master {

v1::Position StartPosition(const v1::JobStatus& job, const v1::CheckpointManifest& manifest,
                           StartOf of) {
  v1::Position position;
  // A warm start takes rows alone.
  if (of != StartOf::kOther || !job.spec().start().warm()) {
    position = manifest.position();
    // The checkpoint may have been cut in another mode, which counts pushes otherwise.
    if (StepsTogether(job.spec().consistency())) position.set_next_push(position.step());
  }
  if (of == StartOf::kOther) {
    // Clears the other job's best value and misses: this job's rules may watch another metric on
    // other data.
    position.clear_best_checkpoint();
    position.clear_has_best();
    position.clear_best();
    position.clear_stop_misses();
    position.clear_plateau_misses();
    position.clear_evaluated_step();
    // Within an epoch the job has the other's records, and counts on. Else its records may be
    // others, and their bad ones are counted in its own first epoch.
    if (!IsWithinEpoch(position)) {
      position.clear_bad_records();
      position.clear_set_aside_records();
      position.set_data_epoch(position.epoch());
    }
  }
  if (!IsTraining(job.task())) {
    // The bad records of training were in other files.
    position.clear_bad_records();
    position.clear_set_aside_records();
  }
  // The run that measures the final model goes on counting bad records where training stopped, not
  // where the best model was cut.
  if (of == StartOf::kFinal) {
    position.set_bad_records(job.bad_records());
    position.set_set_aside_records(job.set_aside_records());
  }
  return position;
}

}  // namespace tessera::master

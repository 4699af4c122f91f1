// Another number of workers for a job that has begun.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/defaults.h"
#include "common/job/job_state.h"
#include "common/job/validate.h"
#include "common/status_macros.h"
#include "master/core/core.h"

namespace tessera::master {

void MasterCore::SetWorkers(v1::JobRecord* record, uint32_t workers) {
  v1::JobStatus& status = *record->mutable_status();
  record->set_ranks(workers);
  if (status.workers() > 0) status.set_workers(workers);
  status.clear_worker_scaling();
}

absl::Status MasterCore::ScaleWorkers(const std::string& job_id, uint32_t workers, const Now& now) {
  v1::JobRecord* record = jobs_.Find(job_id);
  if (record == nullptr) return UnknownJob(job_id);
  v1::JobStatus& status = *record->mutable_status();
  const auto refused = [&](const auto&... why) {
    return absl::FailedPreconditionError(absl::StrCat("job ", job_id, " ", why...));
  };
  if (HasEnded(status.state())) {
    return refused("has ended: ", v1::JobState_Name(status.state()));
  }
  if (!IsTraining(status.task())) {
    return refused(
        "does not train, and keeps the workers that it has: cancel it, and submit it again");
  }
  if (workers > kMaxProcesses) {
    return absl::InvalidArgumentError(
        absl::StrCat("job ", job_id, ": ", workers, " workers, expected 1 to ", kMaxProcesses));
  }
  TESSERA_RETURN_IF_ERROR(CheckQuota(status.spec(), workers));
  JobRun* const run = RunOf(record);
  if (run != nullptr && run->options().OnlyMeasures()) {
    return refused("has trained, and measures its model");
  }
  if (run != nullptr) run->ScaleWorkers(/*are_here=*/false);
  status.clear_worker_scaling();
  const uint32_t from = record->ranks();
  if (status.generation() == 0) {
    status.set_workers(workers);
    jobs_.AddEvent(record, absl::StrCat("to start with ", workers, " workers"), now.wall);
  } else if (workers == from) {
    jobs_.AddEvent(record, absl::StrCat("to keep its ", workers, " workers"), now.wall);
  } else if (run == nullptr) {
    // If the job's checkpoint does not allow the new number yet, JobRun returns to the former one.
    SetWorkers(record, workers);
    jobs_.AddEvent(record, absl::StrCat("to go on with ", workers, " workers, not ", from),
                   now.wall);
  } else {
    v1::WorkerScaling& scaling = *status.mutable_worker_scaling();
    scaling.set_from(from);
    scaling.set_to(workers);
    scaling.set_since_unix_ms(absl::ToUnixMillis(now.wall));
    const size_t here = from + WorkersToTake(*record);
    const std::string above = AboveQuotaWith(*run, workers);
    jobs_.AddEvent(
        record,
        absl::StrCat("asked to go from ", from, " to ", workers, " workers",
                     here < workers ? absl::StrCat("; it waits until so many are here and free, ",
                                                   here, " are")
                                    : "",
                     above.empty() ? "" : absl::StrCat("; it waits, since ", above)),
        now.wall);
  }
  ScaleWorkersOfRuns();
  Schedule(now);
  return absl::OkStatus();
}

void MasterCore::ScaleWorkersOfRuns() {
  size_t free = FreeWorkers().size();
  for (JobRun* run : Runs()) {
    if (!run->AwaitsWorkers()) continue;
    const size_t to = run->record()->status().worker_scaling().to();
    const size_t has = run->options().workers.size() - run->VacantRanks().size();
    const size_t more = to - std::min(to, has);
    run->ScaleWorkers(false);  // so that workers promised to the run are not counted twice
    const size_t serving = Serving(*run->record(), FreeWorkers()).size();
    std::string above = AboveQuotaWith(*run, static_cast<uint32_t>(to));
    const bool may = more <= std::min(free, serving) && above.empty();
    run->ScaleWorkers(may, std::move(above));
    if (may) free -= more;
  }
}

}  // namespace tessera::master

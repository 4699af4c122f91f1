// Jobs that give up their processes for a while: because a user says so, or for a job of higher
// priority.
#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/defaults.h"
#include "master/core.h"

namespace tessera::master {
namespace {

absl::Status Refused(const v1::JobStatus& status, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat("job ", status.job_id(), " ", why));
}

std::string Ended(const v1::JobStatus& status) {
  return absl::StrCat("has ended already: ", v1::JobState_Name(status.state()));
}

}  // namespace

absl::Status MasterCore::Suspend(const std::string& job_id, const Now& now) {
  v1::JobRecord* record = jobs_.Find(job_id);
  if (record == nullptr) return UnknownJob(job_id);
  v1::JobStatus& status = *record->mutable_status();
  if (IsFinished(status.state())) return Refused(status, Ended(status));
  if (status.state() == v1::SUSPENDED && record->preempted_by().empty()) {
    return Refused(status,
                   absl::StrCat("is suspended already; `tessera resume ", job_id, "` queues it"));
  }
  if (status.has_suspending() && status.suspending().preempted_by().empty()) {
    return Refused(status, "is being suspended already, at its next barrier");
  }
  const bool runs = run_ != nullptr && run_->record() == record;
  if (runs && status.task() == v1::PREDICT) {
    return Refused(status,
                   "predicts, and has no checkpoint to go on from: let it end, or cancel it");
  }
  status.mutable_suspending()->clear_preempted_by();
  status.mutable_suspending()->set_since_unix_ms(absl::ToUnixMillis(now.wall));
  if (runs) {
    jobs_.AddEvent(record, "to be suspended: goes to its next barrier", now.wall);
    run_->Suspend(now);
  } else {
    SetSuspended(record, "while it waited", now);
  }
  Schedule(now);
  return absl::OkStatus();
}

absl::Status MasterCore::Resume(const std::string& job_id, const Now& now) {
  v1::JobRecord* record = jobs_.Find(job_id);
  if (record == nullptr) return UnknownJob(job_id);
  v1::JobStatus& status = *record->mutable_status();
  if (IsFinished(status.state())) return Refused(status, Ended(status));
  const std::string& by =
      status.has_suspending() ? status.suspending().preempted_by() : record->preempted_by();
  if (!by.empty()) {
    return Refused(status, absl::StrCat("is pre-empted by ", by,
                                        ", and goes on by itself when its turn comes"));
  }
  if (status.has_suspending()) {
    status.clear_suspending();
    jobs_.AddEvent(record, "runs on: it is not to be suspended any more", now.wall);
  } else if (status.state() != v1::SUSPENDED) {
    return Refused(status, absl::StrCat("is not suspended: ", v1::JobState_Name(status.state())));
  } else {
    jobs_.AddEvent(record, "resumed by a user", now.wall);
    jobs_.Move(record, v1::CREATED, "Queued", "", now.wall);
  }
  Schedule(now);
  return absl::OkStatus();
}

void MasterCore::SetSuspended(v1::JobRecord* record, absl::string_view where, const Now& now) {
  v1::JobStatus& status = *record->mutable_status();
  const std::string by = status.suspending().preempted_by();
  status.clear_suspending();
  status.clear_nodes();
  status.clear_shares();
  status.clear_phase();
  record->set_fruitless_restarts(0);
  record->set_preempted_by(by);
  // It goes on elsewhere with as many as live there, where it asked for that.
  if (status.ps() == 0) record->set_ps(0);
  const v1::ConsistencySpec& mode = status.spec().consistency();
  const bool sync = IsSync(mode.sparse()) || IsSync(mode.dense());
  if (status.workers() == 0 && !sync) record->set_ranks(0);
  jobs_.AddEvent(record,
                 absl::StrCat(by.empty() ? "suspended " : "pre-empted ", where,
                              by.empty() ? "" : absl::StrCat(", by ", by)),
                 now.wall);
  jobs_.Move(record, v1::SUSPENDED, by.empty() ? "Suspended" : "Preempted",
             by.empty()
                 ? absl::StrCat(where, "; `tessera resume ", status.job_id(), "` queues it again")
                 : absl::StrCat("by ", by, "; goes on by itself when its turn comes"),
             now.wall);
}

void MasterCore::SuspendInterrupted(const Now& now) {
  for (v1::JobRecord* record : jobs_.Queue()) {
    if (record->status().state() != v1::RESTARTING || !record->status().has_suspending()) continue;
    SetSuspended(record, "while it was interrupted", now);
  }
}

v1::JobRecord* MasterCore::Contender() {
  const v1::JobRecord* running = run_->record();
  const v1::JobSpec& spec = running->status().spec();
  if (!IsPreemptible(spec) || running->status().task() == v1::PREDICT) return nullptr;
  bool head = true;
  for (v1::JobRecord* record : jobs_.Queue()) {
    if (record == running) continue;
    if (record->status().spec().priority() <= spec.priority()) return nullptr;
    // As StartHead chooses.
    const bool may_start = head || record->status().state() != v1::CREATED;
    head = false;
    if (may_start && HasProcessesFor(*record)) return record;
  }
  return nullptr;
}

void MasterCore::PreemptIfDue(const Now& now) {
  if (run_ == nullptr || run_->end().has_value()) return;
  v1::JobRecord* running = run_->record();
  v1::JobStatus& status = *running->mutable_status();
  if (status.has_suspending() && status.suspending().preempted_by().empty()) return;
  const v1::JobRecord* by = Contender();
  if (by == nullptr) {
    if (!status.has_suspending()) return;
    const std::string was = status.suspending().preempted_by();
    status.clear_suspending();
    return jobs_.AddEvent(
        running, absl::StrCat("runs on: ", was, " does not wait for its place any more"), now.wall);
  }
  const std::string& id = by->status().job_id();
  if (status.has_suspending()) return status.mutable_suspending()->set_preempted_by(id);
  if (!run_->MayBePreempted(options_.least_run, now)) return;
  status.mutable_suspending()->set_preempted_by(id);
  status.mutable_suspending()->set_since_unix_ms(absl::ToUnixMillis(now.wall));
  jobs_.AddEvent(running,
                 absl::StrCat("to be pre-empted by ", id, ", of priority ",
                              by->status().spec().priority(), ": goes to its next barrier"),
                 now.wall);
  run_->Suspend(now);
}

}  // namespace tessera::master

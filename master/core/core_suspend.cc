// Jobs that give up their processes for a while: since a user suspends them, a job of higher
// priority needs the processes, or a ps is to stop.
#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/defaults.h"
#include "common/job/job_state.h"
#include "master/core/core.h"

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
  if (HasEnded(status.state())) return Refused(status, Ended(status));
  if (status.state() == v1::SUSPENDED && record->preempted_by().empty()) {
    return Refused(status,
                   absl::StrCat("is suspended already; `tessera resume ", job_id, "` queues it"));
  }
  if (status.has_suspending() && status.suspending().preempted_by().empty()) {
    return Refused(status, "is being suspended already, at its next barrier");
  }
  JobRun* const run = RunOf(record);
  if (run != nullptr && !IsTraining(status.task())) {
    return Refused(status,
                   "does not train, and has no checkpoint to go on from: let it end, or cancel it");
  }
  status.mutable_suspending()->clear_preempted_by();
  status.mutable_suspending()->set_since_unix_ms(absl::ToUnixMillis(now.wall));
  if (run != nullptr) {
    jobs_.AddEvent(record, "to be suspended: goes to its next barrier", now.wall);
    run->Suspend(now);
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
  if (HasEnded(status.state())) return Refused(status, Ended(status));
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
  const std::string why = status.suspending().why();
  status.clear_suspending();
  status.clear_nodes();
  status.clear_shares();
  status.clear_phase();
  record->set_fruitless_restarts(0);
  if (by.empty()) record->clear_no_room();
  record->set_preempted_by(by);
  // A job that asked for as many processes as live goes on with as many as live then.
  if (status.ps() == 0) record->set_ps(0);
  const bool sync = StepsTogether(status.spec().consistency());
  if (status.workers() == 0 && !sync) record->set_ranks(0);
  jobs_.AddEvent(record,
                 absl::StrCat(by.empty() ? "suspended " : "pre-empted ", where,
                              by.empty() ? "" : absl::StrCat(", by ", by)),
                 now.wall);
  jobs_.Move(record, v1::SUSPENDED, by.empty() ? "Suspended" : "Preempted",
             by.empty() ? absl::StrCat(where, why.empty() ? "" : "; ", why, "; `tessera resume ",
                                       status.job_id(), "` queues it again")
                        : absl::StrCat("by ", by, "; goes on by itself when its turn comes"),
             now.wall);
}

void MasterCore::SuspendInterrupted(const Now& now) {
  for (v1::JobRecord* record : jobs_.Queue()) {
    if (record->status().state() != v1::RESTARTING || !record->status().has_suspending()) continue;
    SetSuspended(record, "while it was interrupted", now);
  }
}

std::map<const JobRun*, const v1::JobRecord*> MasterCore::ToPreempt() {
  // Runs that may be pre-empted: low priority first, then those already being suspended, then the
  // youngest.
  std::vector<const JobRun*> runs;
  size_t free = FreeWorkers().size();
  free -= std::min(free, WorkersPromised());
  for (const JobRun* run : Runs()) {
    const v1::JobStatus& status = run->record()->status();
    if (run->end().has_value()) continue;
    // A user suspends this run: its workers come free.
    if (status.has_suspending() && status.suspending().preempted_by().empty()) {
      free += run->options().workers.size() - run->VacantRanks().size();
    } else if (IsPreemptible(status.spec()) && IsTraining(status.task())) {
      runs.push_back(run);
    }
  }
  std::sort(runs.begin(), runs.end(), [](const JobRun* a, const JobRun* b) {
    const auto rank = [](const JobRun* run) {
      const v1::JobStatus& status = run->record()->status();
      return std::tuple(status.spec().priority(), !status.has_suspending());
    };
    return rank(a) != rank(b) ? rank(a) < rank(b) : a->record()->number() > b->record()->number();
  });
  std::map<const JobRun*, const v1::JobRecord*> preempted;
  bool head = true;
  std::set<std::string> teams;  // above their quotas
  for (const v1::JobRecord* record : Waiting()) {
    Needs needs = NeedsOf(*record);
    if (record->status().has_scaling() && ChooseScaled(*record).has_value()) needs.ps = 1;
    // As StartWaiting chooses.
    const v1::JobState state = record->status().state();
    const std::string team = TeamOf(record->status().spec());
    if (LacksRoom(*record) || (state != v1::RESTARTING && teams.contains(team))) continue;
    if (!AboveQuota(*record, needs.workers).empty()) {
      teams.insert(team);
      continue;
    }
    const bool may_start = std::exchange(head, false) || state != v1::CREATED;
    if (!may_start || membership_.Staying(v1::PS).size() < std::max(needs.ps, 1u)) continue;
    const size_t workers = std::max(needs.workers, 1u);
    std::vector<const JobRun*> chosen;
    const auto serves = [record](const RunNode& node) {
      return MayServe(*record, !node.address.empty());
    };
    // Free workers that cannot serve this job.
    const size_t useless =
        std::min(free, FreeWorkers().size() - Serving(*record, FreeWorkers()).size());
    size_t comes = free - useless;
    for (const JobRun* run : runs) {
      if (comes >= workers) break;
      const bool lower =
          run->record()->status().spec().priority() < record->status().spec().priority();
      if (!lower || preempted.contains(run)) continue;
      chosen.push_back(run);
      const std::vector<RunNode>& of_run = run->options().workers;
      comes += static_cast<size_t>(std::count_if(of_run.begin(), of_run.end(), serves));
      for (const Rank vacant : run->VacantRanks()) {
        if (serves(of_run[vacant.value()])) --comes;
      }
    }
    if (comes < workers) continue;
    free = comes - workers + useless;
    for (const JobRun* run : chosen) preempted[run] = record;
  }
  return preempted;
}

void MasterCore::PreemptIfDue(const Now& now) {
  const std::map<const JobRun*, const v1::JobRecord*> preempted = ToPreempt();
  for (JobRun* run : Runs()) {
    if (run->end().has_value()) continue;
    v1::JobRecord* record = run->record();
    v1::JobStatus& status = *record->mutable_status();
    if (status.has_suspending() && status.suspending().preempted_by().empty()) continue;
    const auto found = preempted.find(run);
    if (found == preempted.end()) {
      if (!status.has_suspending()) continue;
      const std::string was = status.suspending().preempted_by();
      status.clear_suspending();
      jobs_.AddEvent(record,
                     absl::StrCat("runs on: ", was, " does not wait for its place any more"),
                     now.wall);
      continue;
    }
    const v1::JobStatus& by = found->second->status();
    if (status.has_suspending()) {
      status.mutable_suspending()->set_preempted_by(by.job_id());
      continue;
    }
    if (!run->MayBePreempted(options_.least_run, now)) continue;
    status.mutable_suspending()->set_preempted_by(by.job_id());
    status.mutable_suspending()->set_since_unix_ms(absl::ToUnixMillis(now.wall));
    jobs_.AddEvent(record,
                   absl::StrCat("to be pre-empted by ", by.job_id(), ", of priority ",
                                by.spec().priority(), ": goes to its next barrier"),
                   now.wall);
    run->Suspend(now);
  }
}

void MasterCore::ReleaseLeaving(const Now& now) {
  for (const Node* node : membership_.Alive(v1::PS)) {
    if (!node->heartbeat.leaving() || node->released) continue;
    bool held = false;
    for (JobRun* run : Runs()) {
      if (run->MovesTo(node->incarnation)) {
        run->GiveUpScaling(absl::StrCat(node->name, " is to stop"), now);
      }
      run->GiveUpFollower(node->incarnation, "is to stop", now);
      held |= run->Uses(node->incarnation) && run->HoldLeaving(node->name, now);
    }
    if (!held) membership_.Release(node->incarnation);
  }
}

}  // namespace tessera::master

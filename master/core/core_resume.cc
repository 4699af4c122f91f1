// Takes up the runs that were under way when the earlier master was lost.
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/job/validate.h"
#include "common/status_macros.h"
#include "common/version.h"
#include "master/core/core.h"
#include "master/run/run_state.h"

namespace tessera::master {
namespace {

template <typename Message>
absl::StatusOr<Message> Read(const std::map<std::string, std::string>& state,
                             const std::string& key) {
  Message message;
  const auto it = state.find(key);
  if (it == state.end() || !message.ParseFromString(it->second)) {
    return absl::DataLossError(absl::StrCat(
        "state log: ", key, " is ", it == state.end() ? "missing" : "not what it should be"));
  }
  return message;
}

// Checks a job of the state log, which a later version may have accepted.
absl::Status CheckKnown(const v1::JobStatus& job) {
  if (!v1::Task_IsValid(job.task())) {
    return absl::InvalidArgumentError(
        absl::StrCat("task: found number ", job.task(), ", which this version does not know"));
  }
  if (!v1::JobState_IsValid(job.state())) {
    return absl::InvalidArgumentError(
        absl::StrCat("state: found number ", job.state(), ", which this version does not know"));
  }
  return tessera::CheckKnown(job.spec());
}

}  // namespace

void MasterCore::FailUnknown(const Now& now) {
  for (v1::JobRecord* record : jobs_.Unfinished()) {
    const absl::Status known = CheckKnown(record->status());
    if (known.ok()) continue;
    // Ignoring what this version does not know would train another job.
    jobs_.Move(record, v1::FAILED, "InvalidJob",
               absl::StrCat("this master is of version ", kVersion,
                            ", and another accepted the job: ", known.message(),
                            "; submit it again to a master of that version"),
               now.wall);
  }
}

absl::Status MasterCore::ResumeRuns(const std::map<std::string, std::string>& state,
                                    const Now& now) {
  for (const auto& [key, value] : state) {
    // Removes the old entries; the runs write new ones.
    if (absl::StartsWith(key, kRunPrefix)) writes_.push_back({key, std::nullopt});
  }
  // Deaths of processes that one run's saved state still has and a later one's shows as replaced,
  // and of ps whose places are being taken.
  std::vector<Membership::Death> deaths;
  for (v1::JobRecord* record : jobs_.Unfinished()) {
    const std::string key = RunStateKey(record->number());
    if (!state.contains(key)) continue;
    TESSERA_ASSIGN_OR_RETURN(const v1::RunState run, Read<v1::RunState>(state, key));
    if (record->cancel() || record->status().state() != v1::RUNNING ||
        record->status().generation() != run.generation()) {
      continue;
    }
    TESSERA_RETURN_IF_ERROR(ResumeRun(state, run, record, deaths, now));
  }
  for (const Membership::Death& death : deaths) {
    membership_.Leave(death.incarnation, death.reason, now.monotonic);
    OnDeath(death, now);
  }
  return absl::OkStatus();
}

absl::Status MasterCore::ResumeRun(const std::map<std::string, std::string>& state,
                                   const v1::RunState& run, v1::JobRecord* record,
                                   std::vector<Membership::Death>& deaths, const Now& now) {
  const auto expect = [&](v1::NodeKind kind, const v1::RunProcess& process) {
    if (process.incarnation() == 0) return;
    const auto death = membership_.Expect(kind, process.name(), process.address(),
                                          process.incarnation(), now.monotonic, now.wall);
    if (death.has_value()) deaths.push_back(*death);
  };
  const uint64_t number = record->number();
  const auto saved = std::make_shared<SavedRun>();
  saved->state = run;
  TESSERA_ASSIGN_OR_RETURN(saved->plan, Read<v1::PlanState>(state, RunPlanKey(number)));
  TESSERA_ASSIGN_OR_RETURN(const v1::RunMap map, Read<v1::RunMap>(state, RunMapKey(number)));
  RunOptions options;
  for (const auto& [kind, processes, nodes] :
       {std::tuple(v1::PS, &run.ps(), &options.ps),
        std::tuple(v1::WORKER, &run.workers(), &options.workers)}) {
    for (const v1::RunProcess& process : *processes) {
      nodes->push_back(NodeOf(process));
      expect(kind, process);
    }
  }
  for (const v1::RunFollower& follower : run.followers()) {
    expect(v1::PS, follower.node());
    if (!follower.replaces()) continue;
    const v1::RunProcess& lost = run.ps(static_cast<int>(follower.part()));
    deaths.push_back({lost.incarnation(), lost.name(), "before the master was"});
  }
  saved->ranks.resize(options.workers.size());
  for (uint32_t r = 0; r < saved->ranks.size(); ++r) {
    const std::string key = RunRankKey(number, r);
    // A rank that has not asked for work yet has no entry.
    if (!state.contains(key)) continue;
    TESSERA_ASSIGN_OR_RETURN(saved->ranks[r], Read<v1::RankState>(state, key));
  }
  options.owner = {map.owner().begin(), map.owner().end()};
  options.saved = saved;
  options.counts = &counts_;
  options.cluster = options_.cluster;
  options.stuck_after = options_.stuck_after;
  slots_.try_emplace(number, record)
      .first->second.Begin(std::make_unique<JobRun>(&jobs_, record, std::move(options), now));
  return absl::OkStatus();
}

}  // namespace tessera::master

// The run that was under way when the master before this one was lost.
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "master/core.h"

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

RunNode NodeOf(const v1::RunProcess& process) {
  return {process.name(), process.address(), process.incarnation()};
}

}  // namespace

absl::Status MasterCore::ResumeRun(const std::map<std::string, std::string>& state,
                                   const Now& now) {
  // What is written anew takes their place.
  for (const auto& [key, value] : state) {
    if (absl::StartsWith(key, kRunPrefix)) writes_.push_back({key, std::nullopt});
  }
  if (!state.contains(kRunStateKey)) return absl::OkStatus();
  const auto saved = std::make_shared<SavedRun>();
  TESSERA_ASSIGN_OR_RETURN(saved->state, Read<v1::RunState>(state, kRunStateKey));
  TESSERA_ASSIGN_OR_RETURN(saved->plan, Read<v1::PlanState>(state, kRunPlanKey));
  TESSERA_ASSIGN_OR_RETURN(const v1::RunMap map, Read<v1::RunMap>(state, kRunMapKey));
  v1::JobRecord* const record = jobs_.Find(saved->state.job_id());
  if (record == nullptr || record->cancel() || record->status().state() != v1::RUNNING ||
      record->status().generation() != saved->state.generation()) {
    return absl::OkStatus();
  }
  RunOptions options;
  for (const auto& [kind, processes, nodes] :
       {std::tuple(v1::PS, &saved->state.ps(), &options.ps),
        std::tuple(v1::WORKER, &saved->state.workers(), &options.workers)}) {
    for (const v1::RunProcess& process : *processes) {
      nodes->push_back(NodeOf(process));
      if (process.incarnation() == 0) continue;
      membership_.Expect(kind, process.name(), process.address(), process.incarnation(),
                         now.monotonic, now.wall);
    }
  }
  saved->ranks.resize(options.workers.size());
  for (uint32_t r = 0; r < saved->ranks.size(); ++r) {
    // A rank that has not asked yet has none.
    if (!state.contains(RunRankKey(r))) continue;
    TESSERA_ASSIGN_OR_RETURN(saved->ranks[r], Read<v1::RankState>(state, RunRankKey(r)));
  }
  options.owner = {map.owner().begin(), map.owner().end()};
  options.saved = saved;
  options.counts = &counts_;
  run_ = std::make_unique<JobRun>(&jobs_, record, std::move(options), now);
  return absl::OkStatus();
}

}  // namespace tessera::master

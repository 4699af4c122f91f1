// Other ps for a job that has begun.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/defaults.h"
#include "common/job/job_state.h"
#include "common/status_macros.h"
#include "master/core/core.h"
#include "master/run/run_state.h"

namespace tessera::master {

absl::StatusOr<MasterCore::OtherPs> MasterCore::CheckScalePs(const v1::ScaleRequest& request) {
  v1::JobRecord* record = jobs_.Find(request.job_id());
  if (record == nullptr) return UnknownJob(request.job_id());
  const v1::JobStatus& status = record->status();
  const auto refused = [&](const auto&... why) {
    return absl::FailedPreconditionError(absl::StrCat("job ", request.job_id(), " ", why...));
  };
  if (HasEnded(status.state())) {
    return refused("has ended: ", v1::JobState_Name(status.state()));
  }
  if (!IsTraining(status.task())) {
    return refused(
        "does not train, and keeps the ps that it has: cancel it, and submit it with more");
  }
  std::set<std::string> names;
  for (const v1::NodeStatus& node : status.nodes()) {
    if (node.kind() == v1::PS) names.insert(node.name());
  }
  for (const std::string& drained : request.drain()) {
    if (names.contains(drained)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("job ", request.job_id(), " has no ps ", drained, "; it has ",
                     names.empty() ? "none yet" : absl::StrJoin(names, ", ")));
  }
  const uint32_t from = record->ps() > 0 ? record->ps() : status.ps();
  // Without a number, the request adds to an earlier one that has not been done yet.
  std::set<std::string> drain(request.drain().begin(), request.drain().end());
  uint32_t to = request.ps();
  if (to == 0) {
    const uint32_t base = status.has_scaling() ? status.scaling().to() : from;
    for (const std::string& before : status.scaling().drain()) drain.erase(before);
    to = base - std::min(base, static_cast<uint32_t>(drain.size()));
    drain.insert(status.scaling().drain().begin(), status.scaling().drain().end());
  }
  if (to == 0 && !drain.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("job ", request.job_id(), ": without ", absl::StrJoin(drain, ", "),
                     " it would have no ps; give it others first, with tessera scale"));
  }
  if (to == 0 && from == 0) return refused("has no ps yet: wait until it runs, or name a number");
  if (to == 0 || to > kMaxProcesses) {
    return absl::InvalidArgumentError(
        absl::StrCat("job ", request.job_id(), ": ", to, " ps, expected 1 to ", kMaxProcesses));
  }
  const JobRun* const run = RunOf(record);
  if (run != nullptr && run->options().OnlyMeasures()) {
    return refused("has trained, and measures its model");
  }
  return OtherPs{.from = from, .to = to, .drain = std::move(drain)};
}

absl::StatusOr<v1::ScaleResponse> MasterCore::Scale(const v1::ScaleRequest& request,
                                                    const Now& now) {
  const bool scales_ps =
      request.workers() == 0 || request.ps() > 0 || request.drain_size() > 0 || request.balance();
  OtherPs other;
  if (scales_ps) {
    TESSERA_ASSIGN_OR_RETURN(other, CheckScalePs(request));
  }
  TESSERA_RETURN_IF_ERROR(CheckScaled(request, scales_ps ? other.to : 0));
  if (request.workers() > 0) {
    TESSERA_RETURN_IF_ERROR(ScaleWorkers(request.job_id(), request.workers(), now));
  }
  v1::JobRecord* record = jobs_.Find(request.job_id());
  if (scales_ps) ScalePs(record, other, request.balance(), now);
  const v1::JobStatus& status = record->status();
  v1::ScaleResponse to;
  to.set_ps(status.has_scaling() ? status.scaling().to()
            : record->ps() > 0   ? record->ps()
                                 : status.ps());
  to.set_workers(status.has_worker_scaling() ? status.worker_scaling().to()
                 : record->ranks() > 0       ? record->ranks()
                                             : status.workers());
  return to;
}

absl::Status MasterCore::CheckScaled(const v1::ScaleRequest& request, uint32_t ps) const {
  const v1::JobRecord* const record = jobs_.Find(request.job_id());
  if (record == nullptr || !IsTraining(record->status().task())) return absl::OkStatus();
  const v1::JobStatus& status = record->status();
  const Needs needs = NeedsOf(*record);
  const uint32_t workers = request.workers() > 0         ? request.workers()
                           : status.has_worker_scaling() ? status.worker_scaling().to()
                                                         : needs.workers;
  if (ps == 0) ps = status.has_scaling() ? status.scaling().to() : needs.ps;
  return WithContext(ValidateProcesses(status.spec(), workers, ps),
                     absl::StrCat("job ", request.job_id()));
}

void MasterCore::ScalePs(v1::JobRecord* record, const OtherPs& other, bool balance,
                         const Now& now) {
  const auto& [from, to, drain] = other;
  v1::JobStatus& status = *record->mutable_status();
  JobRun* const run = RunOf(record);
  if (run != nullptr) run->GiveUpScaling("another was asked for", now);
  status.clear_scaling();
  if (status.generation() == 0) {
    status.set_ps(to);
    jobs_.AddEvent(record, absl::StrCat("to start with ", to, " ps"), now.wall);
  } else if (to != from || !drain.empty() || balance) {
    v1::Scaling& scaling = *status.mutable_scaling();
    scaling.set_from(from);
    scaling.set_to(to);
    for (const std::string& name : drain) scaling.add_drain(name);
    scaling.set_phase("waiting");
    scaling.set_since_unix_ms(absl::ToUnixMillis(now.wall));
    jobs_.AddEvent(
        record,
        to == from && drain.empty()
            ? std::string("asked to balance its ps")
            : absl::StrCat("asked to go from ", from, " to ", to, " ps",
                           drain.empty() ? "" : ", without ", absl::StrJoin(drain, ", ")),
        now.wall);
  }
  ScaleRuns(now);
  Schedule(now);
}

std::optional<std::vector<RunNode>> MasterCore::ChooseScaled(const v1::JobRecord& record) const {
  const v1::JobStatus& status = record.status();
  const v1::Scaling& scaling = status.scaling();
  const std::set<std::string> drained(scaling.drain().begin(), scaling.drain().end());
  std::vector<RunNode> chosen;
  std::set<uint64_t> taken;
  const auto take = [&](const Node& node) {
    if (chosen.size() == scaling.to() || drained.contains(node.name)) return;
    if (!taken.insert(node.incarnation).second) return;
    chosen.push_back(NodeOf(node));
  };
  const std::vector<const Node*> alive = membership_.Staying(v1::PS);
  for (const v1::NodeStatus& before : status.nodes()) {
    if (before.kind() != v1::PS) continue;
    for (const Node* node : alive) {
      if (node->name == before.name()) take(*node);
    }
  }
  for (const Node* node : PsByUse()) take(*node);
  if (chosen.size() < scaling.to()) return std::nullopt;
  return chosen;
}

void MasterCore::ScaleRuns(const Now& now) {
  for (JobRun* run : Runs()) {
    if (!run->AwaitsScaling()) continue;
    std::optional<std::vector<RunNode>> ps = ChooseScaled(*run->record());
    if (ps.has_value()) run->Scale(*std::move(ps), now);
  }
}

void MasterCore::StartRescaled(v1::JobRecord* record, RunOptions options, const JobRun& before,
                               const Now& now) {
  record->set_ps(static_cast<uint32_t>(options.ps.size()));
  if (record->status().ps() > 0) record->mutable_status()->set_ps(record->ps());
  if (options.workers.size() != before.options().workers.size()) {
    SetWorkers(record, static_cast<uint32_t>(options.workers.size()));
  }
  jobs_.AddEvent(record, before.end()->message, now.wall);
  JobSlot& slot = slots_.at(record->number());
  ClosePs close = CloseOf(record->status().job_id(), before.generation());
  if (options.take_up->generation == 0) {
    // All is in a checkpoint, and a ps may have no room for its rows twice.
    CloseOn(before.options().ps, slot, before);
  } else {
    for (const RunNode& ps : before.options().ps) {
      const bool stays = std::any_of(options.ps.begin(), options.ps.end(),
                                     [&](const RunNode& other) { return other.name == ps.name; });
      if (!stays) close.ps.push_back(ps);
    }
  }
  slot.CloseWhenOpen(close.ps.empty() ? std::nullopt : std::optional(std::move(close)));
  StartRun(record, std::move(options), now);
}

}  // namespace tessera::master

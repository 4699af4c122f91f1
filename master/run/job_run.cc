#include "master/run/job_run.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/job/defaults.h"
#include "common/partition.h"

namespace tessera::master {

JobRun::JobRun(JobTable* jobs, v1::JobRecord* record, RunOptions options, const Now& now)
    : jobs_(jobs),
      record_(record),
      options_(std::move(options)),
      began_(now.monotonic),
      desk_(static_cast<uint32_t>(options_.workers.size())),
      progress_(record),
      watch_(static_cast<uint32_t>(options_.workers.size()),
             MaxLeadOf(record->status().spec().consistency()), now.monotonic),
      partition_count_(options_.partitions),
      replicas_(jobs, record, &options_.ps, [this](uint32_t part) { return lost_.Contains(part); }),
      split_counts_(static_cast<uint32_t>(options_.workers.size())),
      bad_records_(record, &position_),
      evaluations_(record),
      predictions_(static_cast<uint32_t>(options_.workers.size())) {
  last_checkpoint_.at = now.monotonic;
  for (uint32_t r = 0; r < options_.workers.size(); ++r) {
    if (options_.workers[r].incarnation == 0) watch_.Lost(Rank(r), 0, now.monotonic);
  }
  options_.saved != nullptr ? Resume(now) : FindOrOpen(now);
}

bool JobRun::Uses(uint64_t incarnation) const {
  return Among(options_.ps, incarnation) || Among(options_.workers, incarnation) ||
         lost_.Knows(incarnation);
}

std::optional<Work> JobRun::TakeAction(Lane lane) {
  if (lane == Lane::kAside) {
    if (std::optional<Work> weigh = TakeWeighing()) {
      actions_.Begin(lane, ActionQueue::Purpose::kWeigh);
      return weigh;
    }
    return replicas_.TakeTelling([this](uint32_t part) { return OpenRequest(part); });
  }
  if (lane == Lane::kForeground && !lost_.empty()) {
    if (std::optional<Work> recovery = TakeRecovery()) return recovery;
    // A checkpoint is cut only when all ps are there.
    if (actions_.Wants<CutCheckpoint>(lane)) return std::nullopt;
  }
  // The folder of a new cut has no manifest yet, and would be removed.
  if (actions_.Wants<CutCheckpoint>(lane) && Prunes()) return std::nullopt;
  // A lost ps that is taking up its rows may have been asked before the last commit, and reads the
  // checkpoint before.
  return actions_.Take(lane, {.prune = lost_.empty(), .copy = !CopyRests()});
}

void JobRun::ActionDone(Lane lane, ActionResult result, const Now& now) {
  const ActionQueue::Purpose purpose = actions_.Done(lane);
  if (end_.has_value()) return;
  switch (purpose) {
    case ActionQueue::Purpose::kTellCommitted:
      return log_room_.OnTold(now.monotonic);
    case ActionQueue::Purpose::kPrune:
      return;  // Tick looks
    case ActionQueue::Purpose::kCopy:
      return OnCopied(lane, result, now);
    case ActionQueue::Purpose::kDrop:
      if (move_.has_value()) return;  // the rows dropped were an earlier move's
      return OnCopied(lane, result, now);
    case ActionQueue::Purpose::kWeigh:
      return OnWeighed(result, now);
    case ActionQueue::Purpose::kOther:
      break;
  }
  if (lane == Lane::kAside) return replicas_.OnTold(result.status, now);
  if (lane == Lane::kBackground) return OnWritten(result, now);
  if (lost_.asking()) return OnRecovered(result, now);
  switch (phase_) {
    case Phase::kFinding:
      return OnFound(std::move(result), now);
    case Phase::kLoading:
      return OnOpened(result, now);
    case Phase::kMeasuring:
      return OnMeasured(result, now);
    case Phase::kCheckpointing:
      return OnCut(result, now);
    default:
      return;
  }
}

void JobRun::Enter(Phase phase, const Now& now) {
  phase_ = phase;
  phase_since_ = now.monotonic;
  phase == Phase::kTraining ? progress_.Resume(now.monotonic) : progress_.Pause(now.monotonic);
  const char* name = "training";
  if (phase == Phase::kFinding || phase == Phase::kLoading) name = "loading";
  if (phase == Phase::kCounting) name = "counting";
  if (phase == Phase::kEvaluating || phase == Phase::kMeasuring) name = "evaluating";
  if (phase == Phase::kCheckpointing || phase == Phase::kAwaitingWrite) name = "checkpointing";
  if (phase == Phase::kMoving) name = "moving";
  if (phase == Phase::kPredicting) name = "predicting";
  status().set_phase(name);
}

void JobRun::End(RunEnd end, const Now& now) {
  if (end_.has_value()) return;
  UpdateStatus(now);
  progress_.Pause(now.monotonic);
  actions_.Clear();
  end_ = std::move(end);
}

void JobRun::Fail(absl::string_view reason, absl::string_view message, const Now& now) {
  End(RunEnd::Failed(std::string(reason), std::string(message)), now);
}

void JobRun::Restart(absl::string_view reason, absl::string_view message, const Now& now) {
  End(RunEnd::Restart(std::string(reason), std::string(message)), now);
}

std::vector<v1::FileRecords> JobRun::FilesOf(absl::string_view split) const {
  for (const v1::SplitFiles& files : record_->files()) {
    if (files.split() == split) return {files.files().begin(), files.files().end()};
  }
  return {};
}

bool JobRun::HasSplit(absl::string_view split) const {
  if (split == "train") return spec().data().train().files_size() > 0;
  if (split == "validation") return spec().data().validation().files_size() > 0;
  return spec().data().test().files_size() > 0;
}

std::optional<v1::Assignment> JobRun::AssignmentOf(Rank rank) const {
  if (!opened_ || end_.has_value()) return std::nullopt;
  v1::Assignment assignment;
  assignment.set_job_id(record_->status().job_id());
  assignment.set_generation(generation());
  *assignment.mutable_spec() = spec();
  assignment.set_rank(rank.value());
  assignment.set_workers(static_cast<uint32_t>(options_.workers.size()));
  v1::PartitionMap& partitions = *assignment.mutable_partitions();
  partitions.set_version(generation());
  for (const RunNode& node : options_.ps) {
    v1::PsAddress& address = *partitions.add_ps();
    address.set_name(node.name);
    address.set_address(node.address);
    address.set_incarnation(node.incarnation);
  }
  *partitions.mutable_owner() = {owner_.begin(), owner_.end()};
  assignment.set_task(record_->status().task());
  assignment.set_output(record_->status().output());
  if (!WorkersCall()) return assignment;
  for (const RunNode& worker : options_.workers) {
    v1::RankAddress& address = *assignment.add_ranks();
    address.set_name(worker.name);
    address.set_address(worker.address);
    address.set_incarnation(worker.incarnation);
  }
  return assignment;
}

bool JobRun::WorkersCall() const {
  return options_.workers.size() > 1 && WorkersCallEachOther(spec(), record_->status().task());
}

void JobRun::Tick(const Now& now) {
  if (end_.has_value()) return;
  TickWorkers(now);
  if (end_.has_value()) return;
  TickLost(now);
  if (end_.has_value()) return;
  replicas_.Tick(now);
  if (move_.has_value()) move_->Tick(now.monotonic);
  if (AwaitsPruning() && !Prunes()) ContinueBarrier(now);
  if (Suspending()) Suspend(now);
  if (end_.has_value() || phase_ != Phase::kTraining) return;
  RequestDueBarrier(now);
  TickMove(now);
  if (workers_are_here_ && !plan_->BarrierDue()) plan_->RequestBarrierBetweenWindows();
  Advance(now);
}

void JobRun::Heard(uint64_t incarnation, const v1::Heartbeat& heartbeat, const Now& now) {
  if (end_.has_value()) return;
  for (uint32_t r = 0; r < options_.workers.size(); ++r) {
    const RunNode& worker = options_.workers[r];
    if (worker.incarnation != incarnation) continue;
    const v1::Pace& pace = heartbeat.pace();
    if (pace.steps() > 0 || heartbeat.waits_size() > 0) watch_.Moved(Rank(r), now.monotonic);
    if (phase_ != Phase::kTraining) continue;
    slow_.Heard(worker.name, pace, now.monotonic);
    if (pace.steps() > 0) RestIfTooSlow(Rank(r), now);
  }
}

std::vector<SlowProcesses::Process> JobRun::Paces(absl::Duration now) const {
  if (end_.has_value() || phase_ != Phase::kTraining) return {};
  std::vector<SlowProcesses::Process> paces = slow_.All(now);
  // The figures of a lost process are those of the time before.
  std::set<std::string> lost;
  for (const auto& [part, unused] : lost_.places()) lost.insert(options_.ps[part].name);
  for (const auto& [rank, unused] : watch_.vacant()) lost.insert(options_.workers[rank].name);
  std::erase_if(paces, [&lost](const auto& process) { return lost.contains(process.name); });
  return paces;
}

void JobRun::UpdateStatus(const Now& now) {
  v1::JobStatus& out = status();
  if (end_.has_value()) return;
  if (plan_ == nullptr) return;
  const v1::Position at = plan_->position();
  out.set_step(at.step());
  out.set_samples(at.samples());
  out.set_epochs(spec().train().epochs());
  // The epoch under way, or the one just done until the next one begins.
  const bool between = !IsWithinEpoch(at) && plan_->epoch() > 0;
  const bool done = between && (stopping_ || phase_ != Phase::kTraining);
  out.set_epoch(static_cast<uint32_t>(plan_->epoch()) + (done ? 0 : 1));
  if (out.epochs() > 0) out.set_epoch(std::min(out.epoch(), out.epochs()));
  if (!stopping_) out.set_total_steps(plan_->total_steps());
  out.set_learning_rate_scale(position_.plateau_scale() > 0 ? position_.plateau_scale() : 1);
  progress_.Fill(at.step(), plan_->total_steps(), now.monotonic);
  if (stopping_) out.set_eta_seconds(0);
}

}  // namespace tessera::master

// Ps that are lost and come back: a job with push logs waits for them and goes on where it was.
// With recovery.mode partial a job goes on without a log, too: the ps returns to its last
// checkpoint.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/job/defaults.h"
#include "master/run/job_run.h"

namespace tessera::master {

bool JobRun::Trains() const {
  return IsTraining(record_->status().task()) && !options_.OnlyMeasures();
}

bool JobRun::Logged() const {
  return spec().recovery().push_log() > v1::RecoverySpec::OFF && Trains();
}

std::optional<JobRun::Origin> JobRun::PartialOrigin() const {
  if (spec().recovery().mode() != v1::RecoverySpec::PARTIAL || !Trains()) return std::nullopt;
  // Cards push by how much rows have changed, from what ps had before the loss. Whether a worker
  // has a card may change until the ps is back.
  if (MayTrainOnCards()) return std::nullopt;
  Origin origin = origin_;
  // No folder: the rows came from other ps.
  if (origin.folder.empty() && last_checkpoint_.step.has_value()) {
    origin = {.folder = last_checkpoint_.folder, .warm = false, .step = *last_checkpoint_.step};
  }
  // Before the first step nobody may have assigned the dense parameters.
  if (origin.folder.empty() || (origin.step == 0 && !origin.warm)) return std::nullopt;
  return origin;
}

bool JobRun::Unsaved() const { return from_memory_ && origin_.folder.empty(); }

bool JobRun::AwaitPs(uint64_t incarnation, const Now& now) {
  if (end_.has_value() || !opened_) return false;
  if (!ComesBackByLog() && (move_.has_value() || !PartialOrigin().has_value())) return false;
  if (lost_.LoseAgain(incarnation, now.monotonic)) return true;
  for (uint32_t part = 0; part < options_.ps.size(); ++part) {
    if (options_.ps[part].incarnation != incarnation) continue;
    lost_.Lose(part, replicas_.Take(part, now), now.monotonic);
    log_room_.Lose(incarnation);
    leaving_.reset();
    if (writing_.has_value()) writing_->ps_lost = true;
    return true;
  }
  return false;
}

void JobRun::PsJoined(const RunNode& ps, const Now& now) {
  for (uint32_t part = 0; part < options_.ps.size(); ++part) {
    const RunNode& before = options_.ps[part];
    if (before.name != ps.name || before.incarnation == ps.incarnation) continue;
    if (lost_.Contains(part) || end_.has_value() || AwaitPs(before.incarnation, now)) continue;
    // The ps was lost and joined again before this run had heard of the loss.
    return Restart("ProcessLost", absl::StrCat(ps.name, " lost (it has joined again)"), now);
  }
  for (const auto& [part, unused] : lost_.places()) {
    if (options_.ps[part].name == ps.name) lost_.Join(part, ps, now.monotonic);
  }
}

std::optional<Work> JobRun::TakeRecovery() {
  const std::optional<uint32_t> part = lost_.Ask();
  if (!part.has_value()) return std::nullopt;
  const LostPs::Place& lost = lost_.places().at(*part);
  v1::OpenJobRequest request = OpenRequest(*part);
  request.clear_take_over();
  request.clear_move();
  returns_to_ = std::nullopt;
  if (!ComesBackByLog() || lost.log_gone) returns_to_ = PartialOrigin();
  if (returns_to_.has_value()) {
    ReturnAlone(*returns_to_, request);
    // Counted before the ps is told, since the next master might never learn of it.
    const uint64_t more = lost_.CountSteps(*part, StepsSince(*returns_to_));
    status().set_lost_steps(status().lost_steps() + more);
    jobs_->Touch(record_);
  } else {
    request.set_recover(true);
    if (Unsaved()) request.set_checkpoint(*log_origin_);
  }
  recovers_from_ = request.checkpoint();
  OpenPs open;
  open.calls.emplace_back(lost.back, std::move(request));
  return open;
}

uint64_t JobRun::StepsSince(const Origin& origin) const {
  if (plan_ == nullptr) return 0;
  // Units under way may be pushed to their ends; nobody has said how far they are.
  uint64_t pushed = plan_->position().step();
  for (uint32_t r = 0; r < options_.workers.size(); ++r) {
    const v1::NextWorkResponse& held = desk_.held(Rank(r));
    if (!desk_.Busy(Rank(r)) || !held.has_train()) continue;
    pushed += held.train().batch_end() - held.train().batch_begin();
  }
  return pushed - std::min(origin.step, pushed);
}

void JobRun::ReturnAlone(const Origin& origin, v1::OpenJobRequest& request) const {
  request.set_checkpoint(origin.folder);
  request.set_warm(origin.warm);
  request.set_first_step(origin.next_push);
  if (plan_ == nullptr) return;
  // Pushes of units that the ranks have reported are done on the other ps, so this ps takes them
  // for done, too.
  const v1::PlanState plan = plan_->Save();
  for (uint32_t r = 0; r < options_.workers.size(); ++r) {
    const v1::NextWorkResponse& held = desk_.held(Rank(r));
    const bool trains = desk_.Busy(Rank(r)) && held.has_train();
    request.add_pushed(trains ? held.train().first_step()
                              : plan.async().ranks(static_cast<int>(r)).pushes());
  }
}

void JobRun::OnRecovered(const ActionResult& result, const Now& now) {
  const std::optional<uint32_t> part = lost_.Answered();
  if (!part.has_value()) return;
  const LostPs::Place& lost = lost_.places().at(*part);
  const std::string& name = options_.ps[*part].name;
  const bool for_now = lost_.MayPass(*part, result.status, options_.ps_patience,
                                     options_.disk_patience, now.monotonic);
  if (for_now) return lost_.AskAt(*part, now.monotonic + kBetweenTries, result.status);
  // A checkpoint has been committed since it was asked, and it may begin with that one.
  if (!result.status.ok() && !Unsaved() && recovers_from_ != origin_.folder) {
    return lost_.AskAt(*part, now.monotonic, result.status);
  }
  if (!result.status.ok() && lost.replaces) {
    // No worker has called the follower, so the lost ps, if it returns with its log, has all
    // acknowledged pushes.
    jobs_->AddEvent(
        record_,
        absl::StrCat(lost.back.name, " cannot take ", name, "'s place: ", result.status.message()),
        now.wall);
    return lost_.DropFollower(*part, now.monotonic);
  }
  const bool no_log = absl::IsFailedPrecondition(result.status) || absl::IsDataLoss(result.status);
  if (no_log && !returns_to_.has_value() && PartialOrigin().has_value()) {
    jobs_->AddEvent(record_, absl::StrCat(name, ": ", result.status.message()), now.wall);
    return lost_.AskWithoutLog(*part);
  }
  if (!result.status.ok()) {
    // All ps go back to the checkpoint: no steps are lost on one alone.
    status().set_lost_steps(status().lost_steps() - lost.steps.value_or(0));
    return Restart("PsFailed",
                   absl::StrCat(name, " cannot take up the job: ", result.status.message()), now);
  }
  OnBack(*part, lost_.Take(*part), now);
}

void JobRun::OnBack(uint32_t part, const LostPs::Place& lost, const Now& now) {
  const std::string name = options_.ps[part].name;
  ++options_.counts->ps_recoveries;
  // `async` logs are in the operating system's cache, not yet on the disk.
  std::string has = spec().recovery().push_log() == v1::RecoverySpec::FSYNC
                        ? "all that was pushed"
                        : "all that was pushed, unless its machine went down";
  if (returns_to_.has_value()) {
    has = absl::StrCat("the rows of ", returns_to_->folder, "; what was pushed to it since, in ",
                       lost.steps.value_or(0), " steps at most, is lost");
  }
  const double seconds = absl::ToDoubleSeconds(now.monotonic - lost.since);
  jobs_->AddEvent(record_,
                  lost.replaces
                      ? absl::StrFormat("%s, which has a copy of its rows, takes %s's place, "
                                        "after %.1f s",
                                        lost.back.name, name, seconds)
                      : absl::StrFormat("%s is back with %s, after %.1f s", name, has, seconds),
                  now.wall);
  if (move_.has_value()) {
    // The rows of the move that the lost ps had, to send or received, are gone with it.
    jobs_->AddEvent(
        record_,
        absl::StrCat("the move to ", move_->to().size(), " ps begins anew, with ", lost.back.name),
        now.wall);
    PutMoveOff();
  }
  options_.ps[part] = lost.back;
  for (v1::NodeStatus& node : *status().mutable_nodes()) {
    if (node.kind() == v1::PS && node.rank() == part) {
      node.set_name(options_.ps[part].name);
      node.set_address(options_.ps[part].address);
      node.set_incarnation(options_.ps[part].incarnation);
    }
  }
  jobs_->Touch(record_);
  // The cut that waits names the lost ps: makes it anew.
  if (actions_.Wants<CutCheckpoint>(Lane::kForeground)) {
    actions_.TakeBack(Lane::kForeground);
    if (writing_.has_value()) position_.set_best_checkpoint(writing_->best_before);
    BeginCheckpoint(now);
  }
}

void JobRun::TickLost(const Now& now) {
  if (const auto part = lost_.Overdue(options_.ps_patience, now.monotonic)) {
    const std::string why = absl::StrCat(options_.ps[*part].name, " has not come back",
                                         Logged() ? " with its push log" : "", " in ",
                                         absl::FormatDuration(options_.ps_patience));
    jobs_->AddEvent(record_, why, now.wall);
    return Restart("ProcessLost", why, now);
  }
  lost_.Tick(now.monotonic);
  if (!cut_retry_.Due(now.monotonic) || !lost_.empty()) return;
  if (!actions_.WantsAny(Lane::kForeground) && !writing_.has_value()) BeginCheckpoint(now);
}

}  // namespace tessera::master

// Between units of training: the order of what is due at a barrier, checkpoints, and the end.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoint/manifest.h"
#include "common/job/metric_names.h"
#include "common/log.h"
#include "master/actions/checkpoint_calls.h"
#include "master/run/cut_failure.h"
#include "master/run/job_run.h"

namespace tessera::master {

void JobRun::BeginTraining(const Now& now) {
  if (ReturnsToFormerWorkers(now)) return;
  Enter(Phase::kTraining, now);
  absl::StatusOr<std::unique_ptr<TrainingPlan>> plan =
      NewTrainingPlan(PlanOptionsOf(spec(), static_cast<uint32_t>(options_.workers.size())),
                      FilesOf("train"), position_);
  if (!plan.ok()) {
    const bool data = absl::StartsWith(plan.status().message(), "data.");
    return Fail(data ? "DataError" : "InvalidJob", plan.status().message(), now);
  }
  plan_ = *std::move(plan);
  progress_.Begin(plan_->position().step());
  last_checkpoint_.at = trains_since_ = now.monotonic;
  first_step_ = position_.step();
  if (options_.take_up.has_value()) {
    last_checkpoint_.at = options_.take_up->last_checkpoint.at;
    improved_ = options_.take_up->improved;
    if (options_.take_up->cut) {
      due_.checkpoint = !options_.take_up->early;
      due_.requested = true;
      return BeginCheckpoint(now);
    }
  }
  const uint32_t patience = spec().train().early_stopping().patience();
  if (patience > 0 && position_.stop_misses() >= patience) {
    stopping_ = true;  // early stopping ended the training before the restart
    plan_->RequestBarrier();
  }
  // No evaluation is due where a job begins, unless it also ends there.
  if (!last_checkpoint_.step.has_value() && !plan_->due().finished) {
    position_.set_evaluated_step(position_.step());
  }
  if (EvaluationDue()) plan_->RequestBarrier();  // an earlier run ended before it
  UpdateStatus(now);
  if (Suspending()) return Suspend(now);
  Advance(now);
}

void JobRun::Advance(const Now& now) {
  switch (phase_) {
    case Phase::kTraining: {
      if (!plan_->AtBarrier()) return;
      barrier_since_ = now.monotonic;
      UpdateStatus(now);
      due_ = plan_->due();
      // Of an earlier run that ended here before the model was measured, and left it to this one.
      if (first_step_ > 0 && plan_->position().step() == first_step_) {
        due_.checkpoint |= DueHere().checkpoint;
      }
      stopping_ = stopping_ || due_.finished;
      improved_ = false;
      // Copies where training stands from the plan; the state of the rules stays.
      v1::Position at = plan_->position();
      position_.set_epoch(at.epoch());
      position_.set_next_window(at.next_window());
      *position_.mutable_open() = at.open();
      position_.set_step(at.step());
      position_.set_next_push(at.next_push());
      position_.set_samples(at.samples());
      position_.set_window_records(at.window_records());
      position_.set_window_workers(at.window_workers());
      position_.set_epoch_begin(at.epoch_begin());
      position_.set_epoch_shard_records(at.epoch_shard_records());
      position_.set_epoch_records(at.epoch_records());
      position_.set_epoch_files(at.epoch_files());
      if (position_.epoch() > 0 && FailsWithoutSamples("train", position_.samples(), now)) return;
      if (EvaluationDue() && !EndsSoon()) {
        return BeginEvaluation("validation", Wanted::kBarrier, now);
      }
      return ContinueBarrier(now);
    }
    case Phase::kEvaluating:
      if (!round_->done()) return;
      Enter(Phase::kMeasuring, now);
      {
        ComputeMetrics compute;
        compute.layout = round_->layout();
        compute.names = MetricsOf(spec());
        if (round_->folded().empty()) {
          EvaluationRound::Scores scores = round_->TakeScores();
          compute.outputs = std::move(scores.outputs);
          compute.labels = std::move(scores.labels);
          compute.groups = std::move(scores.groups);
        } else {
          compute.sums = round_->TakeSums();
        }
        actions_.Want(Lane::kForeground, std::move(compute));
      }
      return;
    case Phase::kPredicting:
      if (!predictions_.done()) return;
      status().set_checkpoint(start_folder_);
      return Succeed(now);
    default:
      return;
  }
}

void JobRun::ContinueBarrier(const Now& now) {
  const bool best = improved_ && spec().checkpoint().keep_best();
  // The checkpoint of this step was cut before the step's model was measured.
  const bool there = HasCheckpointHere();
  if (best && there) {
    position_.set_best_checkpoint(last_checkpoint_.folder);
  }
  const bool wanted =
      due_.checkpoint || best || (due_.requested && !barrier_for_move_) ||
      log_room_.WantsBarrier(writing_.has_value(), last_checkpoint_.at, now.monotonic);
  const bool due = stopping_ || EndsHere() || (wanted && given_up_ != position_.step());
  if (MoveAtBarrier(due && !there, now)) return;
  // At the end a second checkpoint of this step is awaited: once it is committed, it may take the
  // place of the first.
  const bool ends = (stopping_ || EndsHere()) && writing_.has_value();
  if (!(due || MovesByCheckpoint()) || (there && !ends)) {
    // Nobody removes them after the last one.
    if ((stopping_ || EndsHere()) && Prunes()) return Enter(Phase::kAwaitingWrite, now);
    return LeaveBarrier(now);
  }
  if (!writing_.has_value()) return BeginCheckpoint(now);
  SPDLOG_INFO("job {}: step {} waits until the checkpoint of step {} is written", status().job_id(),
              position_.step(), writing_->step);
  Enter(Phase::kAwaitingWrite, now);
}

bool JobRun::CutsEarly() const {
  const v1::CheckpointSpec& rules = spec().checkpoint();
  // A model that is worse than the best one seen is kept since that one's checkpoint was lost: a
  // matter of disks.
  const bool best = improved_ && rules.keep_best() && position_.stop_misses() == 0;
  // Rows are to expire once the model has been measured, which a suspension leaves for later.
  const bool asked_for = (due_.checkpoint || best || stopping_) && !EvaluationDue();
  return !asked_for && rules.every_minutes() == 0;
}

bool JobRun::HasCheckpointHere() const {
  if (last_checkpoint_.step != position_.step()) return false;
  const auto& tables = spec().tables();
  const bool expires = std::any_of(tables.begin(), tables.end(),
                                   [](const v1::TableSpec& table) { return table.has_expiry(); });
  // What that one has left out a later one of the step makes up for.
  return !expires || !last_checkpoint_.early || CutsEarly();
}

void JobRun::RequestDueBarrier(const Now& now) {
  if (plan_->BarrierDue()) return;
  const bool writes = writing_.has_value();
  const float minutes = spec().checkpoint().every_minutes();
  const bool by_time =
      minutes > 0 && !writes && now.monotonic - last_checkpoint_.at >= absl::Minutes(minutes);
  // One of this step is there, or being written, or given up.
  const uint64_t step = plan_->position().step();
  const bool there =
      last_checkpoint_.step == step || given_up_ == step || (writes && writing_->step == step);
  if ((by_time && given_up_ != step) ||
      (!there && log_room_.WantsBarrier(writes, last_checkpoint_.at, now.monotonic))) {
    plan_->RequestBarrier();
  }
}

std::string JobRun::NewCheckpointFolder() const {
  for (uint32_t number = 1;; ++number) {
    const std::string folder = absl::StrCat(record_->status().job_id(), "/",
                                            CheckpointFolderName(position_.step(), number));
    if (folder != last_checkpoint_.folder && folder != origin_.folder &&
        folder != position_.best_checkpoint()) {
      return folder;
    }
  }
}

void JobRun::BeginCheckpoint(const Now& now) {
  Enter(Phase::kCheckpointing, now);
  const std::string best_before = position_.best_checkpoint();
  // Ps that begin anew at different checkpoints leave none that has no file in common with another.
  const std::string base = last_checkpoint_.out_of_step ? "" : last_checkpoint_.folder;
  NewCheckpoint checkpoint = {.record = record_,
                              .ps = options_.ps,
                              .folder = NewCheckpointFolder(),
                              .base = base,
                              .partition_count = partition_count_,
                              .position = {},
                              .pushes = plan_->pushes(),
                              .evaluations = evaluations_.all(),
                              .early = CutsEarly(),
                              .at = now.wall};
  if (improved_ && spec().checkpoint().keep_best()) {
    position_.set_best_checkpoint(checkpoint.folder);
  }
  checkpoint.position = position_;
  writing_ = {.step = position_.step(),
              .next_push = position_.next_push(),
              .since = now.monotonic,
              .best_before = best_before,
              .folder = checkpoint.folder,
              .early = checkpoint.early,
              .work = WriteOf(checkpoint)};
  actions_.Want(Lane::kForeground, CutOf(checkpoint));
}

void JobRun::OnCut(const ActionResult& result, const Now& now) {
  last_checkpoint_.at = now.monotonic;
  if (!result.status.ok()) {
    OnCheckpointFailed(result, now);
    if (!end_.has_value() && !cut_retry_.waits()) LeaveBarrier(now);
    return;
  }
  actions_.Want(Lane::kBackground, std::move(writing_->work));
  // Nothing can be trained during the write, or too little is left of a push log.
  if (stopping_ || MovesByCheckpoint() || EndsHere() || log_room_.Scarce(now.monotonic)) {
    return Enter(Phase::kAwaitingWrite, now);
  }
  cut_retry_.Reset();
  LeaveBarrier(now);
}

void JobRun::OnWritten(const ActionResult& result, const Now& now) {
  if (writing_->sought && !result.status.ok()) return OnSought(result, now);
  if (!result.status.ok()) {
    OnCheckpointFailed(result, now);
    if (end_.has_value()) return;
  } else {
    ++options_.counts->checkpoints_committed;
    cut_retry_.Reset();
    last_checkpoint_.folder = writing_->folder;
    last_checkpoint_.step = writing_->step;
    last_checkpoint_.early = writing_->early;
    last_checkpoint_.out_of_step = result.out_of_step;
    origin_ = {.folder = writing_->folder,
               .warm = false,
               .step = writing_->step,
               .next_push = writing_->next_push};
    log_origin_.reset();
    status().set_checkpoint(last_checkpoint_.folder);
    // The folder may have been a damaged one, and is written anew.
    auto* damaged = record_->mutable_damaged();
    damaged->erase(std::remove(damaged->begin(), damaged->end(), last_checkpoint_.folder),
                   damaged->end());
    // Checkpoints and evaluations are no events: they have fields of their own, and would push the
    // events of the job's processes out of the newest 50.
    jobs_->Touch(record_);
    SPDLOG_INFO("job {}: checkpoint {}", status().job_id(), last_checkpoint_.folder);
    writing_.reset();
    actions_.WantPruning(PruneOf(*record_, last_checkpoint_.folder, position_.best_checkpoint()));
    if (Logged()) {
      log_room_.OnCommitted();
      TellOfCheckpoint();
    }
  }
  // A barrier that waited cuts its own checkpoint now, or the job is at its end.
  if (phase_ == Phase::kAwaitingWrite) ContinueBarrier(now);
}

void JobRun::TellOfCheckpoint() {
  actions_.WantTelling(TellOf(*record_, options_.ps, last_checkpoint_.folder));
}

void JobRun::OnCheckpointFailed(const ActionResult& result, const Now& now) {
  ++options_.counts->checkpoints_failed;
  log_room_.OnFailed();
  const Writing writing = *std::exchange(writing_, std::nullopt);
  const CutFailure failure = Classify(result, writing.ps_lost, lost_.empty());
  const std::string why =
      absl::StrCat("checkpoint at step ", writing.step, ": ", result.status.message());
  const bool comes_back = Logged() || PartialOrigin().has_value();
  if (failure == CutFailure::kShardFailed || (failure == CutFailure::kDropped && !comes_back)) {
    return Restart("PsFailed", why, now);
  }
  const bool was_best = position_.best_checkpoint() == writing.folder;
  if (was_best) position_.set_best_checkpoint(writing.best_before);
  const bool awaited = phase_ == Phase::kCheckpointing || phase_ == Phase::kAwaitingWrite;
  const FailedCheckpoint failed = {.writing = writing,
                                   .status = result.status,
                                   .why = why,
                                   .was_best = was_best,
                                   .awaited = awaited,
                                   .at_its_barrier = awaited && writing.step == position_.step()};
  // It is to be marked if it is cut again; the barrier may have been come to twice.
  if (was_best && failed.at_its_barrier) improved_ = true;
  if (failure != CutFailure::kDisk && OnCutWithoutPs(failed, now)) return;
  if (stopping_ && writing.step == position_.step()) return OnFinalCutFailed(failed, now);
  TrainOnWithout(failed, now);
}

bool JobRun::CutAgainLater(const std::string& why, absl::Duration patience, const Now& now) {
  // While a ps is lost, ps_patience of TickLost counts instead.
  if (!cut_retry_.Again(why, patience, /*ps_lost=*/!lost_.empty(), now.monotonic)) return false;
  Enter(Phase::kCheckpointing, now);
  if (cut_retry_.ToTell(now.monotonic)) {
    jobs_->AddEvent(record_, absl::StrCat(why, "; it is cut again"), now.wall);
  }
  return true;
}

bool JobRun::OnCutWithoutPs(const FailedCheckpoint& failed, const Now& now) {
  // The ps have later rows by now, so the best model must be trained once more, as in OnSought.
  if (failed.was_best && !failed.at_its_barrier && !PartialOrigin().has_value()) {
    Restart("CheckpointLost",
            absl::StrCat("the best model so far was being written, and is lost: ", failed.why),
            now);
    return true;
  }
  if (!failed.awaited) return false;
  if (!CutAgainLater(failed.why, options_.ps_patience, now)) Restart("PsFailed", failed.why, now);
  return true;
}

void JobRun::OnFinalCutFailed(const FailedCheckpoint& failed, const Now& now) {
  // The ps still have all that was trained: tries again while somebody may make room or mend the
  // disk, which may be read-only by now.
  const bool may_pass = absl::IsResourceExhausted(failed.status) ||
                        absl::IsUnavailable(failed.status) ||
                        absl::IsPermissionDenied(failed.status);
  if (may_pass && CutAgainLater(failed.why, options_.disk_patience, now)) return;
  if (last_checkpoint_.step == failed.writing.step) {
    // This one was to make up for it. The job has what it needs, but for rows that may have been
    // due to expire.
    last_checkpoint_.early = false;
    if (failed.was_best) position_.set_best_checkpoint(last_checkpoint_.folder);
    cut_retry_.Reset();
    jobs_->AddEvent(
        record_,
        absl::StrCat(failed.why, "; the one of this step that is there, ", last_checkpoint_.folder,
                     ", stays, in which rows may be that were due to expire"),
        now.wall);
    return;
  }
  if (failed.was_best) LoseBest(failed.writing, failed.status.message(), now);
  Fail("CheckpointFailed",
       absl::StrCat("training is done, and its last checkpoint, at step ", failed.writing.step,
                    ", could not be written: ", failed.status.message(),
                    absl::IsResourceExhausted(failed.status)
                        ? "; make room below the checkpoint root, then submit the job again"
                        : "; mend that, then submit the job again",
                    last_checkpoint_.folder.empty()
                        ? ""
                        : absl::StrCat(" with start.checkpoint = ", last_checkpoint_.folder)),
       now);
}

void JobRun::TrainOnWithout(const FailedCheckpoint& failed, const Now& now) {
  const bool leaves = failed.at_its_barrier && !EndsHere() && !MovesByCheckpoint();
  // What is pushed from here on would fill the log.
  if (const auto log = log_room_.fullest(now.monotonic);
      leaves && log.has_value() && log_room_.Scarce(now.monotonic)) {
    const std::string both =
        absl::StrCat(WhoseLog(*log), "'s push log has little room, and the ", failed.why);
    if (CutAgainLater(both, options_.disk_patience, now)) return;
  }
  if (leaves) given_up_ = position_.step();
  cut_retry_.Reset();
  const absl::string_view message = failed.status.message();
  jobs_->AddEvent(record_,
                  absl::StrCat("checkpoint at step ", failed.writing.step,
                               " failed, training goes on without it: ", message),
                  now.wall);
  // Where the barrier is not left the checkpoint is cut again; else no ps has its model any more.
  const bool is_cut_again = phase_ == Phase::kAwaitingWrite && failed.at_its_barrier && !leaves;
  if (failed.was_best && !is_cut_again) LoseBest(failed.writing, message, now);
  if (leaves) improved_ = false;
  if (failed.at_its_barrier) OnLastCheckpointFailed(failed.why, now);
  if (MovesByCheckpoint()) {
    GiveUpScaling("its rows would have travelled by that checkpoint", now);
  }
}

void JobRun::LeaveBarrier(const Now& now) {
  if (EndAtBarrier(now)) return;
  // The evaluation was given up for an end of the run that has not come.
  if (EvaluationDue()) return BeginEvaluation("validation", Wanted::kBarrier, now);
  if (stopping_) return Conclude(now);
  barrier_for_move_ = false;
  plan_->Pass();
  Enter(Phase::kTraining, now);
}

void JobRun::Conclude(const Now& now) {
  // The model that the job leaves behind: the last one, or the best one if the job asks for it.
  std::string result = last_checkpoint_.folder;
  if (spec().checkpoint().keep_best() && position_.has_best() &&
      !position_.best_checkpoint().empty()) {
    result = position_.best_checkpoint();
  }
  SetResult(result);
  status().set_total_steps(position_.step());  // was an estimate: windows differ between epochs
  if (!HasSplit("test")) return Succeed(now);
  if (result == last_checkpoint_.folder) return BeginEvaluation("test", Wanted::kFinalTest, now);
  End(RunEnd::Finalize(absl::StrCat("measuring the best model, ", result), result,
                       last_checkpoint_.folder),
      now);
}

// The result's metrics are the evaluations of the step at which its checkpoint was cut.
void JobRun::SetResult(const std::string& checkpoint) {
  status().set_checkpoint(checkpoint);
  status().clear_final_metrics();
  for (const v1::Evaluation& evaluation : status().evaluations()) {
    const auto name = ParseCheckpointFolder(checkpoint.substr(checkpoint.rfind('/') + 1));
    if (!name.has_value() || name->step != evaluation.step()) continue;
    (*status().mutable_final_metrics())["validation"] = evaluation;
  }
}

void JobRun::Succeed(const Now& now) {
  // Sorts the metrics: protobuf's maps have no fixed order.
  std::map<std::string, double> metrics;
  for (const auto& [split, evaluation] : status().final_metrics()) {
    for (const auto& [name, value] : evaluation.metrics()) {
      metrics[absl::StrCat(split, " ", name)] = value;
    }
  }
  std::string message;
  for (const auto& [name, value] : metrics) {
    absl::StrAppendFormat(&message, "%s%s %.6f", message.empty() ? "" : ", ", name, value);
  }
  if (const uint64_t aside = status().set_aside_records(); aside > 0) {
    absl::StrAppend(&message, message.empty() ? "" : "; ", aside,
                    " records set aside (see the events)");
  }
  End(RunEnd::Succeeded(message), now);
}

}  // namespace tessera::master

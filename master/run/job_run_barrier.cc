// Between units of training: the order of what is due at a barrier, and the end.
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoint/manifest.h"
#include "common/job/metric_names.h"
#include "common/log.h"
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

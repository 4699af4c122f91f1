// Evaluations between units of training, and the rules that follow them.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/job/defaults.h"
#include "common/job/metric_names.h"
#include "common/job/scores.h"
#include "common/log.h"
#include "master/plan/plan_parts.h"
#include "master/run/job_run.h"

namespace tessera::master {

bool JobRun::EvaluationDue() const {
  if (!HasSplit("validation") || position_.evaluated_step() == position_.step()) return false;
  return stopping_ || DueHere().evaluate;
}

Due JobRun::DueHere() const {
  const PlanOptions plan = PlanOptionsOf(spec(), static_cast<uint32_t>(options_.workers.size()));
  Due due = DueAtStep(plan, position_.step());
  if (IsWithinEpoch(position_)) return due;
  const Due at_end = DueAtEpochEnd(plan, position_.epoch());
  due.evaluate |= at_end.evaluate;
  due.checkpoint |= at_end.checkpoint;
  return due;
}

void JobRun::BeginEvaluation(absl::string_view split, Wanted wanted, const Now& now) {
  Enter(Phase::kEvaluating, now);
  evaluation_for_ = wanted;
  const std::vector<v1::FileRecords> files = FilesOf(split);
  uint64_t records = 0;
  for (const v1::FileRecords& file : files) records += file.records();
  // Units of whole batches, so that no sample's batch hangs on the number of workers.
  const uint64_t batch = ScoreBatchRecords(spec());
  const uint64_t workers = options_.workers.size();
  const uint64_t batches = (records + batch - 1) / batch;
  const uint64_t most = std::max<uint64_t>(ShuffleWindowRecords(spec().data()) / batch, 1);
  const uint64_t unit = batch * std::clamp<uint64_t>((batches + workers - 1) / workers, 1, most);
  round_ = std::make_unique<EvaluationRound>(
      next_evaluation_++, std::string(split), files, unit, ScoreLayout::Of(spec()),
      MeasuresInParts(spec()) ? MetricsOf(spec()) : std::vector<std::string>());
}

void JobRun::GiveUpEvaluation(const Now& now) {
  for (uint32_t r = 0; r < options_.workers.size(); ++r) {
    if (desk_.Busy(Rank(r))) desk_.Drop(Rank(r));
  }
  round_.reset();
  bad_records_.ForgetEvaluation(bad_records_.of_evaluation());
  jobs_->AddEvent(record_,
                  absl::StrCat("the evaluation of step ", position_.step(),
                               " is given up, and made when the job goes on"),
                  now.wall);
  ContinueBarrier(now);
}

void JobRun::OnMeasured(const ActionResult& result, const Now& now) {
  if (!result.status.ok()) return Restart("MetricsFailed", result.status.message(), now);
  if (FailsWithoutSamples(round_->split(), result.samples, now)) return;
  bad_records_.EndEvaluation();
  v1::Evaluation evaluation;
  evaluation.set_split(round_->split());
  // A job that evaluates is where its checkpoint was, also if it takes rows alone (start.warm).
  const v1::Position& at = evaluation_for_ == Wanted::kTask ? start_.position() : position_;
  evaluation.set_step(at.step());
  // The number of epochs done if one has just ended, else the number of the one under way.
  evaluation.set_epoch(at.epoch() + (IsWithinEpoch(at) ? 1 : 0));
  evaluation.set_samples(result.samples);
  for (const auto& [name, value] : result.metrics) (*evaluation.mutable_metrics())[name] = value;
  TellErrors(result, now);
  round_.reset();
  if (evaluation_for_ == Wanted::kTask) return OnTaskMeasured(evaluation, now);
  if (evaluation_for_ == Wanted::kFinalTest) {
    (*status().mutable_final_metrics())["test"] = evaluation;
    return Succeed(now);
  }
  FollowRules(evaluation, now);
  ContinueBarrier(now);
}

void JobRun::OnTaskMeasured(const v1::Evaluation& evaluation, const Now& now) {
  evaluations_.Append(evaluation);
  *status().add_evaluations() = evaluation;
  jobs_->Touch(record_);
  if (evaluation.split() == "validation" && HasSplit("test")) {
    return BeginEvaluation("test", Wanted::kTask, now);
  }
  for (const v1::Evaluation& measured : evaluations_.all()) {
    (*status().mutable_final_metrics())[measured.split()] = measured;
  }
  status().set_checkpoint(start_folder_);
  Succeed(now);
}

void JobRun::TellErrors(const ActionResult& result, const Now& now) {
  constexpr double kWorthAnEvent = 1e-3;
  for (const auto& [name, bound] : result.error_bounds) {
    std::string text = absl::StrFormat("step %d: %s %s is right to %.1g", position_.step(),
                                       round_->split(), name, bound);
    if (bound > kWorthAnEvent) {
      text += ", since many scores are nearly equal";
      jobs_->AddEvent(record_, text, now.wall);
    } else {
      SPDLOG_INFO("job {}: {}", status().job_id(), text);
    }
  }
}

void JobRun::FollowRules(const v1::Evaluation& evaluation, const Now& now) {
  const Evaluations::Added added =
      evaluations_.Add(evaluation, writing_.has_value() ? writing_->best_before : "", position_);
  position_.set_evaluated_step(position_.step());
  improved_ = added.best;
  if (improved_) given_up_.reset();
  SPDLOG_INFO("job {}: {}", status().job_id(), added.text);
  ShowEvaluations();
  const std::string monitor = MonitorOf(spec());
  if (added.undefined) {
    jobs_->AddEvent(
        record_,
        absl::StrCat(monitor, " is not defined on data.validation (its labels ",
                     "are all alike, or missing?): it counts neither as an improvement nor as "
                     "none"),
        now.wall);
  }
  if (added.outcome.cut) {
    jobs_->AddEvent(record_,
                    absl::StrFormat("plateau: learning rate cut to %g of its schedule",
                                    added.outcome.rules.plateau_scale),
                    now.wall);
  }
  if (added.outcome.stop && !stopping_) {
    stopping_ = true;
    jobs_->AddEvent(record_,
                    absl::StrCat("early stopping: no improvement of ", monitor, " in ",
                                 added.outcome.rules.stop_misses, " evaluations"),
                    now.wall);
  }
}

void JobRun::ShowEvaluations() {
  *status().mutable_evaluations() = {evaluations_.all().begin(), evaluations_.all().end()};
  jobs_->Touch(record_);
}

void JobRun::LoseBest(const Writing& lost, absl::string_view why, const Now& now) {
  // The model at the barrier where training stands was measured meanwhile and may be the best now;
  // its checkpoint is still to be cut.
  const bool at_barrier = phase_ == Phase::kAwaitingWrite && lost.step != position_.step();
  const Evaluations::Left left =
      evaluations_.LoseBest(lost.step, lost.best_before, at_barrier, why, position_);
  if (at_barrier) improved_ = left.at_barrier;
  jobs_->AddEvent(record_, left.text, now.wall);
  ShowEvaluations();
}

}  // namespace tessera::master

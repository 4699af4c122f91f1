// Evaluations between units of training, and the rules that follow them.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/evaluation_rules.h"
#include "common/job/defaults.h"
#include "common/job/metric_names.h"
#include "common/job/scores.h"
#include "common/log.h"
#include "master/job_run.h"
#include "master/plan_parts.h"

namespace tessera::master {
namespace {

// Removes the oldest evaluations but the best one: the job's record, every write of it, every
// manifest and every status hold all that are kept, and any client must be able to take these
// messages.
void ForgetOldest(std::vector<v1::Evaluation>& evaluations) {
  constexpr size_t kMost = 1000;
  constexpr size_t kMostBytes = 1 << 20;
  size_t bytes = 0;
  for (const v1::Evaluation& evaluation : evaluations) bytes += evaluation.ByteSizeLong();
  while (evaluations.size() > kMost || (bytes > kMostBytes && evaluations.size() > 2)) {
    const auto oldest = evaluations.begin() + (evaluations[0].best() ? 1 : 0);
    bytes -= oldest->ByteSizeLong();
    evaluations.erase(oldest);
  }
}

}  // namespace

bool JobRun::EvaluationDue() const {
  if (!HasSplit("validation") || position_.evaluated_step() == position_.step()) return false;
  if (stopping_) return true;
  // As the plan said when it came to this position, which may have been in an earlier run.
  const PlanOptions plan = PlanOptionsOf(spec(), static_cast<uint32_t>(options_.workers.size()));
  const bool epoch_begins =
      position_.next_window() == 0 && position_.open_size() == 0 && position_.epoch_begin() == 0;
  return DueAtStep(plan, position_.step()).evaluate ||
         (epoch_begins && DueAtEpochEnd(plan, position_.epoch()).evaluate);
}

void JobRun::BeginEvaluation(absl::string_view split, Wanted wanted, const Now& now) {
  Enter(Phase::kEvaluating, now);
  evaluation_for_ = wanted;
  evaluation_bad_records_ = 0;
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
  // Its bad records are counted when the evaluation is made.
  position_.set_bad_records(position_.bad_records() - std::exchange(evaluation_bad_records_, 0));
  status().set_bad_records(position_.bad_records());
  jobs_->AddEvent(record_,
                  absl::StrCat("the evaluation of step ", position_.step(),
                               " is given up, and made when the job goes on"),
                  now.wall);
  ContinueBarrier(now);
}

void JobRun::OnMeasured(const ActionResult& result, const Now& now) {
  if (!result.status.ok()) return Restart("MetricsFailed", result.status.message(), now);
  if (FailsWithoutSamples(round_->split(), result.samples, now)) return;
  evaluation_bad_records_ = 0;
  v1::Evaluation evaluation;
  evaluation.set_split(round_->split());
  // A job that evaluates is where its checkpoint was, also if it takes rows alone (start.warm).
  const v1::Position& at = evaluation_for_ == Wanted::kTask ? start_.position() : position_;
  evaluation.set_step(at.step());
  // The number of epochs done if one has just ended, else the number of the one under way.
  const bool at_end = at.next_window() == 0 && at.open_size() == 0;
  evaluation.set_epoch(at.epoch() + (at_end ? 0 : 1));
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
  evaluations_.push_back(evaluation);
  *status().add_evaluations() = evaluation;
  jobs_->Touch(record_);
  if (evaluation.split() == "validation" && HasSplit("test")) {
    return BeginEvaluation("test", Wanted::kTask, now);
  }
  for (const v1::Evaluation& measured : evaluations_) {
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

void JobRun::TellUndefined(const v1::Evaluation& evaluation, const Now& now) {
  const std::string monitor = MonitorOf(spec());
  // Evaluations of a job that this one started from may have other metrics.
  const auto is_undefined = [&monitor](const v1::Evaluation& one) {
    const auto value = one.metrics().find(monitor);
    return value != one.metrics().end() && std::isnan(value->second);
  };
  if (!is_undefined(evaluation) ||
      std::any_of(evaluations_.begin(), evaluations_.end(), is_undefined)) {
    return;
  }
  jobs_->AddEvent(
      record_,
      absl::StrCat(monitor, " is not defined on data.validation (its labels ",
                   "are all alike, or missing?): it counts neither as an improvement nor as none"),
      now.wall);
}

void JobRun::FollowRules(const v1::Evaluation& measured, const Now& now) {
  v1::Evaluation evaluation = measured;
  const std::string monitor = MonitorOf(spec());
  const Followed followed = Follow(monitor, evaluation.metrics().at(monitor));
  const EvaluationOutcome outcome =
      FollowEvaluation(EvaluationRulesFrom(position_), followed.value, followed.larger_is_better,
                       spec().train().schedule().plateau(), spec().train().early_stopping());
  StoreEvaluationRules(outcome.rules, position_);
  position_.set_evaluated_step(position_.step());
  improved_ = outcome.improved;
  TellUndefined(evaluation, now);
  if (outcome.improved) {
    for (v1::Evaluation& before : evaluations_) before.set_best(false);
    evaluation.set_best(true);
  }
  evaluations_.push_back(evaluation);
  ForgetOldest(evaluations_);
  *status().mutable_evaluations() = {evaluations_.begin(), evaluations_.end()};
  std::string text = absl::StrCat("step ", evaluation.step(), ": validation");
  for (const std::string& name : MetricsOf(spec())) {
    absl::StrAppendFormat(&text, " %s %.6f", name, evaluation.metrics().at(name));
  }
  if (outcome.improved) text += " (best so far)";
  jobs_->Touch(record_);
  SPDLOG_INFO("job {}: {}", status().job_id(), text);
  if (outcome.cut) {
    jobs_->AddEvent(record_,
                    absl::StrFormat("plateau: learning rate cut to %g of its schedule",
                                    outcome.rules.plateau_scale),
                    now.wall);
  }
  if (outcome.stop && !stopping_) {
    stopping_ = true;
    jobs_->AddEvent(record_,
                    absl::StrCat("early stopping: no improvement of ", monitor, " in ",
                                 outcome.rules.stop_misses, " evaluations"),
                    now.wall);
  }
}

}  // namespace tessera::master

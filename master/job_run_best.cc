// The best model so far, where its checkpoint fails: evaluations, rules and result follow the one
// that is left.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoint/manifest.h"
#include "common/evaluation_rules.h"
#include "common/job/metric_names.h"
#include "master/job_run.h"

namespace tessera::master {
namespace {

Followed Monitored(const v1::JobSpec& spec, const v1::Evaluation& evaluation) {
  const std::string monitor = MonitorOf(spec);
  return Follow(monitor, evaluation.metrics().at(monitor));
}

std::string Described(const v1::JobSpec& spec, const v1::Evaluation& evaluation) {
  const std::string monitor = MonitorOf(spec);
  return absl::StrFormat("of step %d, %s %.6f", evaluation.step(), monitor,
                         evaluation.metrics().at(monitor));
}

}  // namespace

v1::Evaluation* JobRun::EvaluationOf(uint64_t step) {
  // Searches from the end: evaluations of a job that this one started from come first.
  const auto found = std::find_if(
      evaluations_.rbegin(), evaluations_.rend(), [step](const v1::Evaluation& evaluation) {
        return evaluation.step() == step && evaluation.split() == "validation";
      });
  return found == evaluations_.rend() ? nullptr : &*found;
}

void JobRun::LoseBest(const Writing& lost, absl::string_view why, const Now& now) {
  position_.set_best_checkpoint(lost.best_before);
  EvaluationRules rules = EvaluationRulesFrom(position_);
  v1::Evaluation* best = nullptr;
  const auto kept = ParseCheckpointFolder(lost.best_before.substr(lost.best_before.rfind('/') + 1));
  if (kept.has_value()) best = EvaluationOf(kept->step);
  if (best != nullptr) rules.best = Monitored(spec(), *best).value;
  if (lost.best_before.empty()) rules.has_best = false;
  // The model at the barrier where training stands was measured meanwhile and may be the best now;
  // its checkpoint is still to be cut.
  v1::Evaluation* const here = EvaluationOf(position_.step());
  if (phase_ == Phase::kAwaitingWrite && here != nullptr && lost.step != position_.step()) {
    const Followed value = Monitored(spec(), *here);
    const EvaluationOutcome outcome = FollowEvaluation(rules, value.value, value.larger_is_better,
                                                       {}, spec().train().early_stopping());
    improved_ = outcome.improved;
    if (improved_) {
      rules = outcome.rules;
      best = here;
    }
  }
  StoreEvaluationRules(rules, position_);
  const v1::Evaluation* const was = EvaluationOf(lost.step);
  jobs_->AddEvent(
      record_,
      absl::StrCat("the best model so far",
                   was == nullptr ? "" : absl::StrCat(", ", Described(spec(), *was), ","),
                   " is lost: ", why, "; ",
                   best == nullptr
                       ? "none is left"
                       : absl::StrCat("the best that is left is ", Described(spec(), *best))),
      now.wall);
  for (v1::Evaluation& evaluation : evaluations_) evaluation.set_best(&evaluation == best);
  *status().mutable_evaluations() = {evaluations_.begin(), evaluations_.end()};
  jobs_->Touch(record_);
}

}  // namespace tessera::master

#include "master/evaluations.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoint/manifest.h"
#include "common/job/metric_names.h"

namespace tessera::master {
namespace {

std::string Described(const v1::JobSpec& spec, const v1::Evaluation& evaluation) {
  const std::string monitor = MonitorOf(spec);
  return absl::StrFormat("of step %d, %s %.6f", evaluation.step(), monitor,
                         evaluation.metrics().at(monitor));
}

}  // namespace

void Evaluations::MarkNone() {
  for (v1::Evaluation& evaluation : all_) evaluation.set_best(false);
}

const v1::Evaluation* Evaluations::At(uint64_t step) const {
  // From the end: those of a job that this one started from come first.
  const auto found =
      std::find_if(all_.rbegin(), all_.rend(), [step](const v1::Evaluation& evaluation) {
        return evaluation.step() == step && evaluation.split() == "validation";
      });
  return found == all_.rend() ? nullptr : &*found;
}

Followed Evaluations::Monitored(const v1::Evaluation& evaluation) const {
  const std::string monitor = MonitorOf(spec());
  return Follow(monitor, evaluation.metrics().at(monitor));
}

Evaluations::Added Evaluations::Add(v1::Evaluation evaluation, v1::Position& position) {
  const Followed followed = Monitored(evaluation);
  Added added;
  added.outcome =
      FollowEvaluation(EvaluationRulesFrom(position), followed.value, followed.larger_is_better,
                       spec().train().schedule().plateau(), spec().train().early_stopping());
  StoreEvaluationRules(added.outcome.rules, position);
  // Evaluations of a job that this one started from may have other metrics.
  const auto is_undefined = [monitor = MonitorOf(spec())](const v1::Evaluation& one) {
    const auto value = one.metrics().find(monitor);
    return value != one.metrics().end() && std::isnan(value->second);
  };
  added.undefined =
      is_undefined(evaluation) && std::none_of(all_.begin(), all_.end(), is_undefined);
  if (added.outcome.improved) {
    MarkNone();
    evaluation.set_best(true);
  }
  added.text = absl::StrCat("step ", evaluation.step(), ": validation");
  for (const std::string& name : MetricsOf(spec())) {
    absl::StrAppendFormat(&added.text, " %s %.6f", name, evaluation.metrics().at(name));
  }
  if (added.outcome.improved) added.text += " (best so far)";
  all_.push_back(std::move(evaluation));
  ForgetOldest();
  return added;
}

void Evaluations::ForgetOldest() {
  constexpr size_t kMost = 1000;
  constexpr size_t kMostBytes = 1 << 20;
  size_t bytes = 0;
  for (const v1::Evaluation& evaluation : all_) bytes += evaluation.ByteSizeLong();
  while (all_.size() > kMost || (bytes > kMostBytes && all_.size() > 2)) {
    const auto oldest = all_.begin() + (all_[0].best() ? 1 : 0);
    bytes -= oldest->ByteSizeLong();
    all_.erase(oldest);
  }
}

Evaluations::Left Evaluations::LoseBest(uint64_t step, const std::string& before, bool at_barrier,
                                        absl::string_view why, v1::Position& position) {
  position.set_best_checkpoint(before);
  EvaluationRules rules = EvaluationRulesFrom(position);
  const v1::Evaluation* best = nullptr;
  const auto kept = ParseCheckpointFolder(before.substr(before.rfind('/') + 1));
  if (kept.has_value()) best = At(kept->step);
  if (best != nullptr) rules.best = Monitored(*best).value;
  if (before.empty()) rules.has_best = false;
  Left left;
  const v1::Evaluation* const here = at_barrier ? At(position.step()) : nullptr;
  if (here != nullptr) {
    const Followed value = Monitored(*here);
    const EvaluationOutcome outcome = FollowEvaluation(rules, value.value, value.larger_is_better,
                                                       {}, spec().train().early_stopping());
    left.improved = outcome.improved;
    if (outcome.improved) {
      rules = outcome.rules;
      best = here;
    }
  }
  StoreEvaluationRules(rules, position);
  const v1::Evaluation* const was = At(step);
  left.text = absl::StrCat(
      "the best model so far",
      was == nullptr ? "" : absl::StrCat(", ", Described(spec(), *was), ","), " is lost: ", why,
      "; ",
      best == nullptr ? "none is left"
                      : absl::StrCat("the best that is left is ", Described(spec(), *best)));
  for (v1::Evaluation& evaluation : all_) evaluation.set_best(&evaluation == best);
  return left;
}

}  // namespace tessera::master

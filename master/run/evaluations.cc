#include "master/run/evaluations.h"

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

const v1::Evaluation* Evaluations::Of(const std::string& checkpoint) const {
  const auto folder = ParseCheckpointFolder(checkpoint.substr(checkpoint.rfind('/') + 1));
  return folder.has_value() ? At(folder->step) : nullptr;
}

Followed Evaluations::Monitored(const v1::Evaluation& evaluation) const {
  const std::string monitor = MonitorOf(spec());
  return Follow(monitor, evaluation.metrics().at(monitor));
}

const v1::Evaluation* Evaluations::Best() const {
  const auto found = std::find_if(
      all_.begin(), all_.end(), [](const v1::Evaluation& evaluation) { return evaluation.best(); });
  return found == all_.end() ? nullptr : &*found;
}

bool Evaluations::BetterThan(const v1::Evaluation* best, const Followed& followed) const {
  EvaluationRules kept;
  kept.has_best = best != nullptr;
  if (best != nullptr) kept.best = Monitored(*best).value;
  return FollowEvaluation(kept, followed.value, followed.larger_is_better, {},
                          spec().train().early_stopping())
      .improved;
}

Evaluations::Added Evaluations::Add(v1::Evaluation evaluation, const std::string& before,
                                    v1::Position& position) {
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
  // Also one that is worse than the best one seen, if that one's checkpoint is lost.
  added.best = added.outcome.improved || BetterThan(Best(), followed);
  if (added.best) {
    MarkNone();
    evaluation.set_best(true);
  }
  added.text = absl::StrCat("step ", evaluation.step(), ": validation");
  for (const std::string& name : MetricsOf(spec())) {
    absl::StrAppendFormat(&added.text, " %s %.6f", name, evaluation.metrics().at(name));
  }
  if (added.outcome.improved) {
    added.text += " (best so far)";
  } else if (added.best) {
    added.text += " (best that is left)";
  }
  all_.push_back(std::move(evaluation));
  ForgetOldest({position.best_checkpoint(), before});
  return added;
}

void Evaluations::ForgetOldest(const std::vector<std::string>& kept) {
  constexpr size_t kMost = 1000;
  constexpr size_t kMostBytes = 1 << 20;
  size_t bytes = 0;
  for (const v1::Evaluation& evaluation : all_) bytes += evaluation.ByteSizeLong();
  while (all_.size() > kMost || (bytes > kMostBytes && all_.size() > 2)) {
    const auto oldest = std::find_if(all_.begin(), all_.end() - 1, [&](const auto& evaluation) {
      return !evaluation.best() &&
             std::none_of(kept.begin(), kept.end(), [&](const std::string& checkpoint) {
               return Of(checkpoint) == &evaluation;
             });
    });
    if (oldest == all_.end() - 1) return;
    bytes -= oldest->ByteSizeLong();
    all_.erase(oldest);
  }
}

Evaluations::Left Evaluations::LoseBest(uint64_t step, const std::string& before, bool at_barrier,
                                        absl::string_view why, v1::Position& position) {
  position.set_best_checkpoint(before);
  const v1::Evaluation* best = Of(before);
  Left left;
  const v1::Evaluation* const here = at_barrier ? At(position.step()) : nullptr;
  if (here != nullptr && BetterThan(best, Monitored(*here))) {
    left.at_barrier = true;
    best = here;
  }
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

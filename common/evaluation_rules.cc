#include "common/evaluation_rules.h"

#include <algorithm>
#include <cmath>

#include "common/job/defaults.h"

namespace tessera {
namespace {

bool Improves(const EvaluationRules& rules, double metric, bool higher_is_better,
              double min_delta) {
  if (!rules.has_best) return true;
  const double gain = higher_is_better ? metric - rules.best : rules.best - metric;
  return gain > 0 && gain >= min_delta;
}

}  // namespace

EvaluationRules EvaluationRulesFrom(const v1::Position& position) {
  return {.plateau_scale = position.plateau_scale() == 0 ? 1 : position.plateau_scale(),
          .plateau_misses = position.plateau_misses(),
          .stop_misses = position.stop_misses(),
          .has_best = position.has_best(),
          .best = position.best()};
}

void StoreEvaluationRules(const EvaluationRules& rules, v1::Position& position) {
  position.set_plateau_scale(rules.plateau_scale);
  position.set_plateau_misses(rules.plateau_misses);
  position.set_stop_misses(rules.stop_misses);
  position.set_has_best(rules.has_best);
  position.set_best(rules.best);
}

EvaluationOutcome FollowEvaluation(const EvaluationRules& rules, double metric,
                                   bool higher_is_better, const v1::PlateauSpec& plateau,
                                   const v1::EarlyStoppingSpec& stopping) {
  EvaluationOutcome outcome = {.rules = rules};
  EvaluationRules& next = outcome.rules;
  if (std::isnan(metric)) return outcome;
  outcome.improved = Improves(rules, metric, higher_is_better, stopping.min_delta());
  if (outcome.improved) {
    next.has_best = true;
    next.best = metric;
    next.plateau_misses = 0;
    next.stop_misses = 0;
    return outcome;
  }
  ++next.plateau_misses;
  ++next.stop_misses;
  outcome.stop = stopping.patience() > 0 && next.stop_misses >= stopping.patience();
  if (plateau.factor() > 0 && next.plateau_misses >= PlateauPatience(plateau)) {
    next.plateau_misses = 0;
    // A scale that is already below the minimum is not raised to it.
    const double floor = std::min<double>(plateau.minimum(), rules.plateau_scale);
    next.plateau_scale = std::max(rules.plateau_scale * plateau.factor(), floor);
    outcome.cut = next.plateau_scale < rules.plateau_scale;
  }
  return outcome;
}

}  // namespace tessera

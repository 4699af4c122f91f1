#include "common/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/job/defaults.h"

namespace tessera {
namespace {

bool Improves(const EvaluationRules& rules, double metric, bool higher_is_better,
              double min_delta) {
  if (!rules.has_best) return true;
  const double gain = higher_is_better ? metric - rules.best : rules.best - metric;
  return gain > 0 && gain >= min_delta;
}

// The part of the decay from 1 to 0 that is left at t in (0, 1].
double DecayLeft(const v1::ScheduleSpec& spec, double t) {
  // With a power of 0 the value falls at once at the end of the decay, as its limit does.
  if (t >= 1) return 0;
  if (spec.decay() == v1::COSINE) return (1 + std::cos(std::numbers::pi * t)) / 2;
  return std::pow(1 - t, spec.has_power() ? spec.power() : 2);
}

double StairsValue(const v1::StepDecaySpec& stairs, uint64_t step) {
  uint64_t cuts = 0;
  if (stairs.every() > 0) {
    cuts = step / stairs.every();
  } else {
    for (uint64_t at : stairs.at()) cuts += step >= at;
  }
  return cuts == 0 ? 1 : std::pow(static_cast<double>(stairs.factor()), static_cast<double>(cuts));
}

}  // namespace

double ScheduleValue(const v1::ScheduleSpec& spec, uint64_t step) {
  double value = 1;
  if (step < spec.warmup_steps()) {
    value = static_cast<double>(step + 1) / static_cast<double>(spec.warmup_steps());
  }
  if (spec.decay_steps() > 0 && step > spec.decay_start()) {
    const double t = std::min(1.0, static_cast<double>(step - spec.decay_start()) /
                                       static_cast<double>(spec.decay_steps()));
    const double end = spec.end();
    value *= end + (1 - end) * DecayLeft(spec, t);
  }
  return value * StairsValue(spec.step(), step);
}

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

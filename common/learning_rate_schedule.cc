#include "common/learning_rate_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tessera {
namespace {

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

}  // namespace tessera

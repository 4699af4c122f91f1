#pragma once

#include <cstdint>

#include "tessera/v1/job.pb.h"

namespace tessera {

// The learning rate's multiplier at a step, counted from 0, without the plateau rule's factor
// (EvaluationRules::plateau_scale). Pure: the product of
// - warm-up: (step + 1) / warmup_steps while step < warmup_steps;
// - decay, from decay_start on: end + (1 - end) d(t), t = (step - decay_start) / decay_steps, at
//   most 1; d(t) = (1 - t)^power, or (1 + cos(pi t)) / 2 (Loshchilov, Hutter 2017,
//   arXiv:1608.03983, without restarts);
// - stairs: factor^n, n = floor(step / every), or the number of `at` that step has reached.
double ScheduleValue(const v1::ScheduleSpec& spec, uint64_t step);

}  // namespace tessera

#pragma once

#include <cstdint>

#include "tessera/v1/checkpoint.pb.h"
#include "tessera/v1/job.pb.h"

namespace tessera {

// The state that is kept between evaluations: the fields of v1::Position with the same names.
struct EvaluationRules {
  double plateau_scale = 1;     // the product of the plateau rule's cuts so far
  uint32_t plateau_misses = 0;  // evaluations without improvement since the last improvement or cut
  uint32_t stop_misses = 0;     // evaluations without improvement since the last improvement
  bool has_best = false;
  double best = 0;  // best value of the monitored metric
};
EvaluationRules EvaluationRulesFrom(const v1::Position& position);
void StoreEvaluationRules(const EvaluationRules& rules, v1::Position& position);

struct EvaluationOutcome {
  EvaluationRules rules;  // the new state
  bool improved = false;  // the metric is the best so far
  bool cut = false;       // the plateau rule lowered the rate
  bool stop = false;      // early stopping ends the training
};

// Applies the rules to one more evaluation. A metric improves if it is better than the best so far
// by stopping.min_delta or more (any amount if that is 0); the first number always improves. NaN,
// for data on which the metric is undefined, changes nothing.
EvaluationOutcome FollowEvaluation(const EvaluationRules& rules, double metric,
                                   bool higher_is_better, const v1::PlateauSpec& plateau,
                                   const v1::EarlyStoppingSpec& stopping);

}  // namespace tessera

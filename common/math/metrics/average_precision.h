#pragma once

#include "common/math/metrics/sorted_scores.h"

namespace tessera::math {

// The area under the curve of precision over recall, as average precision (Manning, Raghavan,
// Schuetze 2008, section 8.4), without interpolation: over the distinct logits t, from the largest
// down,
//   AP = sum over t of (R(t) - R(previous t)) P(t)
// where samples of logit >= t are predicted positive, R is the share of the positives that are
// predicted so, P the share of the predicted ones that are positive. NaN if a class is missing or
// its samples weigh nothing.
double AveragePrecision(const SortedScores& scores);

}  // namespace tessera::math

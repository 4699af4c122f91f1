#pragma once

#include "absl/types/span.h"
#include "common/task_pool.h"

namespace tessera::math {

// Auc of SortScores without weights, bit for bit, shared by the pool's threads and the caller. NaN,
// too, where a logit is one. O(n log n) time, shared, and 4 bytes a sample besides the arguments.
double ParallelAuc(absl::Span<const float> logits,  // [n]
                   absl::Span<const float> labels,  // [n], above 0.5: positive
                   TaskPool* pool);

}  // namespace tessera::math

#pragma once

#include "absl/types/span.h"
#include "common/task_pool.h"

namespace tessera::math {

// The same as Auc(SortScores(logits, labels)), bit for bit, computed by the pool's threads and the
// caller. NaN also if a logit is NaN. O(n log n) time in all threads together, and 4 bytes a sample
// besides the arguments.
double ParallelAuc(absl::Span<const float> logits,  // [n]
                   absl::Span<const float> labels,  // [n], above 0.5: positive
                   TaskPool* pool);

}  // namespace tessera::math

#pragma once

#include <cstdint>
#include <vector>

#include "worker/data/batch.h"

namespace tessera::worker {

// The order in which a window's records are trained: a permutation of their rows, drawn from `key`.
// With a group column (FindGroupColumn; -1: none) runs of rows with equal groups stay together:
// runs are shuffled, and rows within each run. A run of more than `longest` rows (above 0) is first
// cut into runs of `longest` and a rest.
std::vector<uint32_t> RecordOrder(uint64_t key, const Batch& records, int32_t group_column,
                                  uint32_t longest);

}  // namespace tessera::worker

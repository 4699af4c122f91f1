#pragma once

#include <cstdint>
#include <vector>

#include "worker/data/batch.h"

namespace tessera::worker {

// The order in which a window's records are trained: a permutation of their rows, drawn from `key`.
// With a group column (FindGroupColumn; -1: none) runs of rows with equal groups stay together, in
// an order of their own; one of more than `longest` rows, above 0, is cut into such of that many
// and a rest.
std::vector<uint32_t> RecordOrder(uint64_t key, const Batch& records, int32_t group_column,
                                  uint32_t longest);

}  // namespace tessera::worker

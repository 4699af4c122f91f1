#pragma once

#include <cstdint>

namespace tessera {

// The least row_cache.max_age of rows that a card trains (train.row_cache.write_back): how many
// batches after the one that pulled a row use it, at least. A worker requests rows two batches
// ahead, before the batch before them is pushed, and a row that comes again must have the worker's
// own changes.
inline constexpr uint32_t kLeastTrainedRowAge = 3;

}  // namespace tessera

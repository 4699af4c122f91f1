#pragma once

#include <cstdint>

namespace tessera {

// A row that a card trains (train.row_cache.write_back) is used in so many batches after the one
// that pulled it at least: rows of two are asked for before the batch before them is pushed, and
// one that comes again is to have its worker's own changes.
inline constexpr uint32_t kLeastTrainedRowAge = 3;

}  // namespace tessera

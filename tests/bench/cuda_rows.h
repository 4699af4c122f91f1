#pragma once

#include "tests/bench/bench.h"

namespace tessera::bench {

// Rows on a card: pooling, its gradient and rows that are kept, beside copies on it; and what the
// worker does for them, with or without a card.
void RegisterRowsOnCard(const Options& options);

}  // namespace tessera::bench

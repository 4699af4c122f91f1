#pragma once

#include "tests/bench/bench.h"

namespace tessera::bench {

// Steps of models on a card beside their products alone, products beside the fastest of cuBLAS's
// candidates, and what a layer's bias and rectifier cost in its product.
void RegisterStepsOnCard(const Options& options);

}  // namespace tessera::bench

#pragma once

#include <cstdint>

namespace tessera::cuda {

// The sequences that a recurrence walks through. Tensors are row-major.
struct Sequences {
  int64_t batch;
  int64_t places;
  int64_t units;
  bool all_states;         // all states are the output, else the last one
  const float* attention;  // [batch, places]; null: 1
  const float* lengths;    // [batch]; null: all have `places`
};

}  // namespace tessera::cuda

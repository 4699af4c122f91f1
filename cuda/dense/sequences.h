#pragma once

#include <cstdint>

namespace tessera::cuda {

// What a recurrence goes over. Tensors are row-major.
struct Sequences {
  int64_t batch;
  int64_t places;
  int64_t units;
  bool all_states;         // are the output, else the last alone
  const float* attention;  // [batch, places]; null: 1
  const float* lengths;    // [batch]; null: all have `places`
};

}  // namespace tessera::cuda

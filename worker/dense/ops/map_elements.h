#pragma once

#include <cstddef>

namespace tessera::worker {

// to[i] = f(i, from[i]). The two are one array or do not overlap; the loop becomes vectors in both
// cases. f reads nothing else that is written.
template <typename Function>
void MapElements(const float* from, float* to, size_t count, const Function& f) {
  if (from == to) {
    for (size_t i = 0; i < count; ++i) to[i] = f(i, to[i]);
    return;
  }
  const float* __restrict in = from;
  float* __restrict out = to;
  for (size_t i = 0; i < count; ++i) out[i] = f(i, in[i]);
}

}  // namespace tessera::worker

#pragma once

#include <cstddef>
#include <cstring>

namespace tessera::worker {

// Eight floats in a vector register, for the few loops that compilers do not turn into vectors as
// they stand. Arithmetic is element by element; a float stands for eight of itself.
using Lanes = float __attribute__((vector_size(32)));
inline constexpr size_t kLanes = 8;

inline Lanes LoadLanes(const float* from) {
  Lanes lanes;
  std::memcpy(&lanes, from, sizeof(lanes));
  return lanes;
}
inline void StoreLanes(const Lanes& lanes, float* to) { std::memcpy(to, &lanes, sizeof(lanes)); }

}  // namespace tessera::worker

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

// Transposes eight rows.
inline void TransposeLanes(Lanes (&rows)[kLanes]) {
  Lanes pairs[kLanes], fours[kLanes];
  for (size_t i = 0; i < kLanes; i += 2) {
    pairs[i] = __builtin_shufflevector(rows[i], rows[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[i + 1] = __builtin_shufflevector(rows[i], rows[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (size_t i = 0; i < kLanes; i += 4) {
    for (size_t j = 0; j < 2; ++j) {
      const Lanes &a = pairs[i + j], &b = pairs[i + j + 2];
      fours[i + 2 * j] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
      fours[i + 2 * j + 1] = __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (size_t i = 0; i < kLanes / 2; ++i) {
    rows[i] = __builtin_shufflevector(fours[i], fours[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    rows[i + 4] = __builtin_shufflevector(fours[i], fours[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

}  // namespace tessera::worker

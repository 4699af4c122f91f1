#pragma once

#include <cstddef>

namespace tessera::worker {

// The sum of term(0), ..., term(count - 1) in eight lanes, which the compiler turns into a vector;
// a plain sum must add one by one. The order is always the same.
template <typename Term>
float LaneSum(size_t count, const Term& term) {
  constexpr size_t kLanes = 8;
  float lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) lanes[l] += term(i + l);
  }
  float sum = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
              ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
  for (; i < count; ++i) sum += term(i);
  return sum;
}

}  // namespace tessera::worker

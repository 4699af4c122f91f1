#pragma once

#include <cmath>
#include <cstdint>

#include "common/math/host_device.h"

namespace tessera::math {

// Pairs of fields (i, j) with j < i or, with `self`, j <= i, row by row of the lower triangle: (1,
// 0), (2, 0), (2, 1), ... or (0, 0), (1, 0), (1, 1), ... Int: large enough for the number of pairs.
template <typename Int>
struct FieldPairOf {
  Int i, j;

  // The index of the first pair of field i: i (i - 1) / 2, with `self` i (i + 1) / 2.
  TESSERA_HOST_DEVICE static Int RowBegin(Int i, bool self) {
    return i * (i - 1 + (self ? 2 : 0)) / 2;
  }
  // The index of the pair of two fields, in either order.
  TESSERA_HOST_DEVICE static Int IndexOf(Int i, Int j, bool self) {
    return i > j ? RowBegin(i, self) + j : RowBegin(j, self) + i;
  }
  TESSERA_HOST_DEVICE static FieldPairOf At(Int index, bool self) {
    // Near the root of RowBegin(i) = index; rounding may miss it, so the loops correct i.
    Int i = static_cast<Int>(std::sqrt(2 * static_cast<float>(index))) + (self ? 0 : 1);
    while (RowBegin(i, self) > index) --i;
    while (RowBegin(i + 1, self) <= index) ++i;
    return {i, index - RowBegin(i, self)};
  }
};

using FieldPair = FieldPairOf<int64_t>;

// Of vectors that each field has for every other field, in the order of the fields: the index of
// field i's for field j.
template <typename Int>
TESSERA_HOST_DEVICE inline Int FieldAwareIndex(Int i, Int j, Int fields) {
  return i * (fields - 1) + (j < i ? j : j - 1);
}

}  // namespace tessera::math

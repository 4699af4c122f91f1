// Compiled with -ffp-contract=fast: a product and a sum are one instruction here.
#include "worker/dense/ops/small_product.h"

#include <algorithm>

#include "worker/dense/ops/lanes.h"

namespace tessera::worker {
namespace {

constexpr size_t kTileRows = 4;

// Where sums are written, and how.
struct Target {
  float* c;
  size_t stride;
  float scale;
  bool add;
};

// Rows [0, kRows) and columns [0, kVectors * kLanes) of c.
template <size_t kRows, size_t kVectors>
void Tile(size_t k, StridedMatrix a, const float* b, size_t b_stride, Target to) {
  Lanes sums[kRows][kVectors] = {};
  for (size_t p = 0; p < k; ++p) {
    Lanes right[kVectors];
    for (size_t v = 0; v < kVectors; ++v) right[v] = LoadLanes(b + p * b_stride + v * kLanes);
    for (size_t i = 0; i < kRows; ++i) {
      const float left = a.data[i * a.row_stride + p * a.column_stride];
      for (size_t v = 0; v < kVectors; ++v) sums[i][v] += left * right[v];
    }
  }
  for (size_t i = 0; i < kRows; ++i) {
    for (size_t v = 0; v < kVectors; ++v) {
      float* const c = to.c + i * to.stride + v * kLanes;
      const Lanes sum = sums[i][v] * to.scale;
      StoreLanes(to.add ? LoadLanes(c) + sum : sum, c);
    }
  }
}

// The same for n columns, fewer than a vector has.
template <size_t kRows>
void NarrowTile(size_t n, size_t k, StridedMatrix a, const float* b, size_t b_stride, Target to) {
  for (size_t j = 0; j < n; ++j) {
    float sums[kRows] = {};
    for (size_t p = 0; p < k; ++p) {
      const float right = b[p * b_stride + j];
      for (size_t i = 0; i < kRows; ++i) {
        sums[i] += a.data[i * a.row_stride + p * a.column_stride] * right;
      }
    }
    for (size_t i = 0; i < kRows; ++i) {
      float& c = to.c[i * to.stride + j];
      c = to.add ? c + to.scale * sums[i] : to.scale * sums[i];
    }
  }
}

template <size_t kRows>
void RowOfTiles(size_t n, size_t k, StridedMatrix a, const float* b, size_t b_stride, Target to) {
  size_t j = 0;
  const auto from = [&to](size_t column) {
    return Target{to.c + column, to.stride, to.scale, to.add};
  };
  for (; j + 2 * kLanes <= n; j += 2 * kLanes) {
    Tile<kRows, 2>(k, a, b + j, b_stride, from(j));
  }
  for (; j + kLanes <= n; j += kLanes) Tile<kRows, 1>(k, a, b + j, b_stride, from(j));
  if (j == n) return;
  if (n < kLanes || to.add) return NarrowTile<kRows>(n - j, k, a, b + j, b_stride, from(j));
  // Computes some columns twice, with the same sums.
  Tile<kRows, 1>(k, a, b + n - kLanes, b_stride, from(n - kLanes));
}

}  // namespace

void SmallProduct(size_t m, size_t n, size_t k, StridedMatrix a, const float* b, size_t b_stride,
                  float scale, float* c, size_t c_stride, bool add) {
  for (size_t i = 0; i < m; i += kTileRows) {
    const StridedMatrix rows = {a.data + i * a.row_stride, a.row_stride, a.column_stride};
    const Target to = {c + i * c_stride, c_stride, scale, add};
    switch (std::min(kTileRows, m - i)) {
      case 1:
        RowOfTiles<1>(n, k, rows, b, b_stride, to);
        break;
      case 2:
        RowOfTiles<2>(n, k, rows, b, b_stride, to);
        break;
      case 3:
        RowOfTiles<3>(n, k, rows, b, b_stride, to);
        break;
      default:
        RowOfTiles<kTileRows>(n, k, rows, b, b_stride, to);
    }
  }
}

void TransposeSmall(size_t rows, size_t columns, const float* from, size_t from_stride, float* to,
                    size_t to_stride) {
  const size_t whole_rows = rows / kLanes * kLanes, whole_columns = columns / kLanes * kLanes;
  for (size_t i = 0; i < whole_rows; i += kLanes) {
    for (size_t j = 0; j < whole_columns; j += kLanes) {
      Lanes block[kLanes];
      for (size_t r = 0; r < kLanes; ++r) block[r] = LoadLanes(from + (i + r) * from_stride + j);
      TransposeLanes(block);
      for (size_t r = 0; r < kLanes; ++r) StoreLanes(block[r], to + (j + r) * to_stride + i);
    }
  }
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = i < whole_rows ? whole_columns : 0; j < columns; ++j) {
      to[j * to_stride + i] = from[i * from_stride + j];
    }
  }
}

}  // namespace tessera::worker

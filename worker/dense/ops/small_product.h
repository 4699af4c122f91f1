#pragma once

#include <cstddef>

namespace tessera::worker {

// Products that are too small for a call into a library: of one sample's fields, or of a few
// samples' states. Run in the caller's thread; nothing is allocated.

// Element (i, j) of a matrix lies at data[i * row_stride + j * column_stride].
struct StridedMatrix {
  const float* data;
  size_t row_stride;
  size_t column_stride = 1;
};

// c [m, n] = scale * a [m, k] b [k, n]; with `add` the product is added to c. Rows of b and of c
// are `b_stride` and `c_stride` floats apart; c overlaps neither. Each element is summed in the
// order of k.
void SmallProduct(size_t m, size_t n, size_t k, StridedMatrix a, const float* b, size_t b_stride,
                  float scale, float* c, size_t c_stride, bool add = false);

// to [columns, rows] = the transpose of from [rows, columns]; their rows are `to_stride` and
// `from_stride` floats apart.
void TransposeSmall(size_t rows, size_t columns, const float* from, size_t from_stride, float* to,
                    size_t to_stride);

}  // namespace tessera::worker

#pragma once

#include <algorithm>

#include "absl/types/span.h"
#include "worker/dense/column_sum.h"

namespace tessera::worker {

// Sums dy over its rows: the gradient of a bias [width] that was added to every row.
inline void BiasGradient(TaskPool* pool,
                         absl::Span<const float> dy,       // [rows, width]
                         absl::Span<float> bias_gradient)  // [width]
{
  const size_t width = bias_gradient.size();
  const size_t rows = dy.size() / width;
  const float* __restrict in = dy.data();
  ColumnSums<1>(
      pool, rows, width, [&](size_t at, size_t, float(&terms)[1]) { terms[0] = in[at]; },
      [&](size_t column, const double(&sums)[1]) {
        bias_gradient[column] = static_cast<float>(sums[0]);
      });
}

}  // namespace tessera::worker

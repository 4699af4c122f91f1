#pragma once

#include "cuda/dense/strided.h"
#include "worker/dense/ops/strided_rows.h"

namespace tessera::worker {

// Whether CudaStrided takes `rows`: only the strangest broadcasts have too many axes.
template <size_t N>
bool FitsCuda(const StridedRows<N>& rows) {
  return rows.axes().size() <= cuda::kMostAxes;
}

// The walk of `rows` through a batch, for a card.
template <size_t N>
cuda::StridedAxes<N> CudaStrided(const StridedRows<N>& rows, size_t batch) {
  cuda::StridedAxes<N> axes;
  for (size_t i = 0; i < rows.axes().size(); ++i) {
    const auto& axis = rows.axes()[i];
    cuda::Offsets<N> strides;
    for (size_t k = 0; k < N; ++k) strides.of[k] = static_cast<int64_t>(axis.strides[k]);
    const bool outermost = i + 1 == rows.axes().size();
    axes.Append(static_cast<int64_t>(axis.count * (outermost ? batch : 1)), strides);
  }
  return axes;
}

}  // namespace tessera::worker

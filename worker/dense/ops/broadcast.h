#pragma once

#include <algorithm>

#include "absl/types/span.h"
#include "worker/dense/ops/strided_rows.h"
#include "worker/dense/shape.h"

namespace tessera::worker {

// ONNX's broadcasting, of tensors that all have the batch: their ranks are equal, and in each axis
// the sizes are equal or 1. False: the shapes do not fit.
inline bool BroadcastShape(absl::Span<const Shape> inputs, Shape* output) {
  *output = inputs[0];
  for (const Shape& input : inputs) {
    if (input.rank() != output->rank()) return false;
    for (size_t i = 0; i < input.rank(); ++i) {
      if (input.dim(i) == output->dim(i) || input.dim(i) == 1) continue;
      if (output->dim(i) != 1) return false;
      output->set_dim(i, input.dim(i));
    }
  }
  return true;
}

// Walks through `output` with N inputs that are broadcast to it.
template <size_t N>
StridedRows<N> BroadcastRows(const Shape& output, const std::array<Shape, N>& inputs) {
  absl::InlinedVector<std::array<size_t, N>, 4> strides(output.rank());
  std::array<size_t, N> sample_floats;
  for (size_t k = 0; k < N; ++k) {
    size_t floats = 1;
    for (size_t i = output.rank(); i-- > 0;) {
      strides[i][k] = inputs[k].dim(i) == 1 ? 0 : floats;
      floats *= static_cast<size_t>(inputs[k].dim(i));
    }
    sample_floats[k] = floats;
  }
  return StridedRows<N>(output, strides, sample_floats);
}

}  // namespace tessera::worker

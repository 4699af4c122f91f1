#pragma once

#include <array>
#include <cstddef>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "worker/dense/shape.h"

namespace tessera::worker {

// Walks through a tensor from its first float to its last, while N other tensors are read in
// another order: broadcast, or with their axes changed about. The walk is cut into rows, as long as
// possible, through each of which every tensor moves by a fixed stride. Immutable.
template <size_t N>
class StridedRows {
 public:
  using Strides = std::array<size_t, N>;
  struct Axis {
    size_t count;
    Strides strides;
  };

  // strides[i][k]: floats of tensor k from one index of axis i of `shape` to the next; 0 if tensor
  // k is broadcast there. sample_floats[k]: floats of a sample in tensor k.
  StridedRows(const Shape& shape, const absl::InlinedVector<Strides, 4>& strides,
              const Strides& sample_floats) {
    for (size_t i = shape.rank(); i-- > 0;) {
      if (shape.dim(i) > 1) AddOuter(static_cast<size_t>(shape.dim(i)), strides[i]);
    }
    AddOuter(1, sample_floats);  // the batch
  }

  // Calls row(begin, begins, count, strides) for each row: floats begin, begin + 1, ... of the
  // walked tensor belong to floats begins[k], begins[k] + strides[k], ... of tensor k.
  template <typename Row>
  void ForEach(size_t batch, const Row& row) const {
    if (batch == 0) return;
    const size_t outer = axes_.size() - 1;
    const Axis& inner = axes_[0];
    const size_t count = inner.count * (outer == 0 ? batch : 1);
    absl::InlinedVector<size_t, 10> index(axes_.size(), 0);  // of the axes outside of the row
    Strides begins{};
    for (size_t begin = 0;; begin += count) {
      row(begin, begins, count, inner.strides);
      size_t i = 1;
      for (; i <= outer; ++i) {
        const size_t size = axes_[i].count * (i == outer ? batch : 1);
        for (size_t k = 0; k < N; ++k) begins[k] += axes_[i].strides[k];
        if (++index[i] < size) break;
        for (size_t k = 0; k < N; ++k) begins[k] -= size * axes_[i].strides[k];
        index[i] = 0;
      }
      if (i > outer) return;
    }
  }

  // The axes, innermost first, merged where possible; the last one is repeated for the batch.
  absl::Span<const Axis> axes() const { return axes_; }

 private:
  // Adds an axis; merges it with the one before if all tensors move evenly through both.
  void AddOuter(size_t count, const Strides& strides) {
    if (!axes_.empty()) {
      Axis& inner = axes_.back();
      bool even = true;
      for (size_t k = 0; k < N; ++k) even &= strides[k] == inner.count * inner.strides[k];
      if (even) {
        inner.count *= count;
        return;
      }
    }
    axes_.push_back({count, strides});
  }

  absl::InlinedVector<Axis, 10> axes_;
};

}  // namespace tessera::worker

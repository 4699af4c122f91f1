#pragma once

// For .cu files only.

#include "cuda/dense/strided.h"
#include "cuda/launch.h"

namespace tessera::cuda {

// Calls store(o, sum) for every float o of tensor `of`: the sum of term(offsets) over all floats of
// the walk that lie at o. So it sums over the axes in which the tensor's stride is 0; its other
// strides are those of a row-major tensor. `offsets` are the offsets in the N tensors and then, as
// number N, in the tensor that is walked through.
template <size_t N, typename Term, typename Store>
void SumAxes(Stream& stream, const char* what, const StridedAxes<N>& axes, size_t of, Term term,
             Store store) {
  StridedAxes<N + 1> kept, summed;
  int64_t floats = 1;
  for (int axis = 0; axis < axes.count; ++axis) {
    Offsets<N + 1> stride;
    for (size_t k = 0; k < N; ++k) stride.of[k] = axes.strides[axis][k];
    stride.of[N] = floats;
    floats *= axes.sizes[axis];
    (axes.strides[axis][of] == 0 ? summed : kept).Append(axes.sizes[axis], stride);
  }
  const int64_t rows = kept.floats(), columns = summed.floats();
  const auto at = [=] TESSERA_HOST_DEVICE(Offsets<N + 1> offsets, int64_t column) {
    const Offsets<N + 1> more = summed.At(column);
    for (size_t k = 0; k <= N; ++k) offsets.of[k] += more.of[k];
    return offsets;
  };
  // Neighbouring threads read neighbouring floats: if the innermost axis is summed and long enough
  // they share a row, else each has a row.
  constexpr int64_t kSharedColumns = 16;
  if (axes.strides[0][of] == 0 && columns >= kSharedColumns) {
    SumRows(
        stream, what, rows, columns,
        [=] TESSERA_HOST_DEVICE(int64_t row, int64_t column) {
          return term(at(kept.At(row), column));
        },
        store);
  } else {
    ForEach(stream, what, rows, [=] TESSERA_HOST_DEVICE(int64_t row) {
      const Offsets<N + 1> begin = kept.At(row);
      float sum = 0;
      for (int64_t column = 0; column < columns; ++column) sum += term(at(begin, column));
      store(row, sum);
    });
  }
}

}  // namespace tessera::cuda

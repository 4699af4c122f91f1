#pragma once

#include "common/math/sequence_length.h"
#include "cuda/dense/products.h"
#include "cuda/dense/sequences.h"
#include "cuda/launch.h"

namespace tessera::cuda {

// What recurrences of all cells have in common; for .cu files.

TESSERA_HOST_DEVICE inline bool Inside(const Sequences& sequences, int64_t sample, int64_t place) {
  if (sequences.lengths == nullptr) return true;
  const size_t places = static_cast<size_t>(sequences.places);
  return place < static_cast<int64_t>(math::SequenceLength(sequences.lengths[sample], places));
}

// step(place) from the first place on, with u [batch, gates, units] = the recurrence [gates, units,
// units] of the state h [batch, units], which it changes.
template <typename Step>
void WalkForward(Stream& stream, const Sequences& sequences, int64_t gates, const float* recurrence,
                 const float* h, float* u, Step step) {
  for (int64_t place = 0; place < sequences.places; ++place) {
    Gemm(stream, Products::kFloat32, sequences.batch, gates * sequences.units, sequences.units, {h},
         {recurrence, true}, u);
    step(place);
  }
}

// step(place) from the last place on. It turns `slope` [batch, units], the gradient of the state
// behind the place, into that of the state before but for what it has through u, whose gradient
// it leaves in du [batch, gates, units].
template <typename Step>
void WalkBackward(Stream& stream, const Sequences& sequences, int64_t gates,
                  const float* recurrence, const float* du, float* slope, Step step) {
  for (int64_t place = sequences.places - 1; place >= 0; --place) {
    step(place);
    if (place == 0) break;  // Nobody needs the gradient of h = 0.
    Gemm(stream, Products::kFloat32, sequences.batch, sequences.units, gates * sequences.units,
         {du}, {recurrence}, slope, {.add = true});
  }
}

}  // namespace tessera::cuda

#pragma once

#include "common/math/sequence_length.h"
#include "cuda/dense/products.h"
#include "cuda/dense/sequences.h"
#include "cuda/launch.h"

namespace tessera::cuda {

// Shared by the recurrences of all cells; for .cu files.

TESSERA_HOST_DEVICE inline bool Inside(const Sequences& sequences, int64_t sample, int64_t place) {
  if (sequences.lengths == nullptr) return true;
  const size_t places = static_cast<size_t>(sequences.places);
  return place < static_cast<int64_t>(math::SequenceLength(sequences.lengths[sample], places));
}

// Calls step(place) from the first place on, with u [batch, gates, units] = the recurrence [gates,
// units, units] times the state h [batch, units]; step advances h.
template <typename Step>
void WalkForward(Stream& stream, const Sequences& sequences, int64_t gates, const float* recurrence,
                 const float* h, float* u, Step step) {
  for (int64_t place = 0; place < sequences.places; ++place) {
    Gemm(stream, Products::kFloat32, sequences.batch, gates * sequences.units, sequences.units, {h},
         {recurrence, true}, u);
    step(place);
  }
}

// Calls step(place) from the last place on. step turns `slope` [batch, units] from the gradient of
// the state after the place into that of the state before, without the part through u, and leaves
// the gradient of u in du [batch, gates, units].
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

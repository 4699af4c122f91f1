#pragma once

#include <cstdint>

#include "common/math/optim/row_options.h"
#include "cuda/stream.h"

namespace tessera::cuda {

// Rows of one table that a card keeps and trains. Each slot holds a row, its optimizer's floats,
// and both as the row's ps has them, so that the card can tell by how much it has changed them. All
// pointers are to the card's memory.
struct TrainedRows {
  int64_t dim = 0;
  int64_t states = 0;      // optimizer floats of a row: of its elements, then of the row
  float* rows = nullptr;   // [slots, dim], as BatchRows::kept
  float* state = nullptr;  // [slots, states]
  float* at_ps = nullptr;  // [slots, dim + states]
  int64_t floats() const { return dim + states; }
};

// changes [count, floats] = by how much the row of slots[i] differs from the ps's. Afterwards at_ps
// is what the ps has once it has added the changes, with its rounding.
void TakeChanges(Stream& stream, const TrainedRows& trained, const uint32_t* slots, int64_t count,
                 float* changes);

// In `own` of PutRows: the row has no change of the card's own.
constexpr uint32_t kNoChange = UINT32_MAX;
// Puts row i of `whole` [count, floats], as its ps had it, into slots[i]. own[i]: index in
// `changes` (from TakeChanges) of the card's changes to that row that the ps did not have yet; they
// are added. `own` null: there are none.
void PutRows(Stream& stream, const TrainedRows& trained, const float* whole, const uint32_t* slots,
             const uint32_t* own, int64_t count, const float* changes);

// to [count, dim] = from[rows[i]].
void GatherRows(Stream& stream, const float* from, const uint32_t* rows, int64_t count, int64_t dim,
                float* to);

// The gradients of a batch's rows: row r is the trained row in slot at[r]; if at[r] is `slots` or
// above, row r is not trained here.
struct RowGradients {
  const float* gradients = nullptr;  // [rows, dim]
  const uint32_t* at = nullptr;      // [rows]; no slot occurs twice
  int64_t rows = 0;
  uint32_t slots = 0;
};
// Trains the rows that have a gradient by one step. Formula: a struct of common/math/optim that is
// not kByWhole. Uses the stream's scratch.
template <typename Formula>
void TrainRows(Stream& stream, const TrainedRows& trained, const RowGradients& batch,
               const math::RowOptions& options, const typename Formula::Params& params);

}  // namespace tessera::cuda

#pragma once

#include <cstdint>

#include "common/math/optim/row_options.h"
#include "cuda/stream.h"

namespace tessera::cuda {

// Rows of one table that a card keeps and trains: each in a slot, with its optimizer's slots, and
// with the numbers that its ps has, so that the card can say by how much it has changed them. All
// that is pointed to is the card's.
struct TrainedRows {
  int64_t dim = 0;
  int64_t states = 0;      // optimizer floats of a row: by element, then those of the row
  float* rows = nullptr;   // [slots, dim], as BatchRows::kept
  float* state = nullptr;  // [slots, states]
  float* at_ps = nullptr;  // [slots, dim + states]
  int64_t floats() const { return dim + states; }
};

// changes [count, floats]: by how much the row of slots[i] has changed. From then on it has not,
// but for what the sum that the ps makes of them is rounded by.
void TakeChanges(Stream& stream, const TrainedRows& trained, const uint32_t* slots, int64_t count,
                 float* changes);

// In `own` below: none.
constexpr uint32_t kNoChange = UINT32_MAX;
// Row i of `whole` [count, floats], as its ps had it, goes to slots[i]. own[i]: where `changes`, as
// TakeChanges gave them, has what the card itself has made of that row and the ps had not yet; it
// is added. `own` may be null: none has.
void PutRows(Stream& stream, const TrainedRows& trained, const float* whole, const uint32_t* slots,
             const uint32_t* own, int64_t count, const float* changes);

// to [count, dim]: those of `from` at rows[i].
void GatherRows(Stream& stream, const float* from, const uint32_t* rows, int64_t count, int64_t dim,
                float* to);

// The gradients of a batch's rows: row r's are those of the trained row at[r], or where that is
// `slots` or above, of none.
struct RowGradients {
  const float* gradients = nullptr;  // [rows, dim]
  const uint32_t* at = nullptr;      // [rows]; no slot occurs twice
  int64_t rows = 0;
  uint32_t slots = 0;
};
// One step of the trained rows that have a gradient. Formula: a struct of common/math/optim
// that is not kByWhole. Uses the stream's scratch.
template <typename Formula>
void TrainRows(Stream& stream, const TrainedRows& trained, const RowGradients& batch,
               const math::RowOptions& options, const typename Formula::Params& params);

}  // namespace tessera::cuda

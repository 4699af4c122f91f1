#include "cuda/rows/training.h"

#include <type_traits>
#include <utility>

#include "common/math/optim/adadelta.h"
#include "common/math/optim/adagrad.h"
#include "common/math/optim/adam.h"
#include "common/math/optim/amsgrad.h"
#include "common/math/optim/clip.h"
#include "common/math/optim/ftrl.h"
#include "common/math/optim/momentum.h"
#include "common/math/optim/rmsprop.h"
#include "common/math/optim/row_wise_adagrad.h"
#include "common/math/optim/sgd.h"
#include "common/math/optim/sum_of_squares.h"
#include "common/math/optim/weight_decay.h"
#include "cuda/launch.h"

namespace tessera::cuda {
namespace {

// Float i of the row in `slot`: the row's elements, then its optimizer's floats.
TESSERA_HOST_DEVICE inline float* NumberOf(const TrainedRows& trained, uint32_t slot, int64_t i) {
  return i < trained.dim ? trained.rows + slot * trained.dim + i
                         : trained.state + slot * trained.states + (i - trained.dim);
}

// Updates element d of a row with these optimizer floats.
template <typename Formula, size_t... k>
TESSERA_HOST_DEVICE inline void UpdateElement(const typename Formula::Params& params,
                                              const typename Formula::Row& row, float g, float& w,
                                              float* slots, int64_t d, int64_t dim,
                                              std::index_sequence<k...>) {
  Formula::Update(params, row, g, w, slots[static_cast<int64_t>(k) * dim + d]...);
}

// A formula with optimizer floats of the row updates them once, before the elements, and makes a
// Formula::Row that all elements share; other formulas' Row is empty.
template <typename Formula>
constexpr bool kBeginsRows = Formula::kRowSlots > 0;
template <typename Formula>
TESSERA_HOST_DEVICE inline typename Formula::Row BeginRow(const typename Formula::Params& params,
                                                          float* row_slots, float) {
  return Formula::BeginRow(params, row_slots);
}
template <>
TESSERA_HOST_DEVICE inline math::RowWiseAdagrad::Row BeginRow<math::RowWiseAdagrad>(
    const math::RowWiseAdagrad::Params& params, float* row_slots, float mean_square) {
  return math::RowWiseAdagrad::BeginRow(params, row_slots, mean_square);
}

// Arrays by row of the batch; null if not needed.
template <typename Formula>
struct ByRow {
  float* clip = nullptr;  // factor of the row's gradient
  typename Formula::Row* shared = nullptr;
};

// The gradient of one row: clipped, plus l2 * w.
struct Gradient {
  const float* g;
  const float* w;
  float clip_value, clip, l2;
  TESSERA_HOST_DEVICE float operator()(int64_t d) const {
    const float to_value = clip_value > 0 ? math::ClipToValue(g[d], clip_value) : g[d];
    return to_value * clip + l2 * w[d];
  }
};

// The gradient of batch row r, which is in `slot`; `clip`: by row, or null.
TESSERA_HOST_DEVICE inline Gradient GradientOf(const TrainedRows& trained,
                                               const RowGradients& batch,
                                               const math::RowOptions& options, const float* clip,
                                               int64_t r, uint32_t slot) {
  return {batch.gradients + r * trained.dim, trained.rows + slot * trained.dim, options.clip_value,
          clip == nullptr ? 1 : clip[r], options.l2};
}

void FindClips(Stream& stream, const TrainedRows& trained, const RowGradients& batch,
               const math::RowOptions& options, float* clip) {
  ForEach(stream, "norms of gradients of rows", batch.rows, [=] TESSERA_HOST_DEVICE(int64_t r) {
    const uint32_t slot = batch.at[r];
    if (slot >= batch.slots) return;
    Gradient gradient = GradientOf(trained, batch, options, nullptr, r, slot);
    gradient.l2 = 0;
    clip[r] = math::ClipFactor(math::SumOfSquares(static_cast<uint32_t>(trained.dim), gradient),
                               options.clip_norm);
  });
}

template <typename Formula>
void BeginRows(Stream& stream, const TrainedRows& trained, const RowGradients& batch,
               const math::RowOptions& options, const typename Formula::Params& params,
               const ByRow<Formula>& by_row) {
  constexpr bool kNeedsSquares = std::is_same_v<Formula, math::RowWiseAdagrad>;
  ForEach(stream, "what steps of rows share", batch.rows, [=] TESSERA_HOST_DEVICE(int64_t r) {
    const uint32_t slot = batch.at[r];
    if (slot >= batch.slots) return;
    const auto dim = static_cast<uint32_t>(trained.dim);
    double mean_square = 0;
    if (kNeedsSquares) {
      mean_square =
          math::SumOfSquares(dim, GradientOf(trained, batch, options, by_row.clip, r, slot)) / dim;
    }
    float* const row_slots =
        trained.state + slot * trained.states + trained.states - Formula::kRowSlots;
    by_row.shared[r] = BeginRow<Formula>(params, row_slots, static_cast<float>(mean_square));
  });
}

template <typename Formula>
void MoveElements(Stream& stream, const TrainedRows& trained, const RowGradients& batch,
                  const math::RowOptions& options, const typename Formula::Params& params,
                  const ByRow<Formula>& by_row) {
  ForEachInRows(stream, "steps of rows", batch.rows, trained.dim,
                [=] TESSERA_HOST_DEVICE(int64_t r, int64_t d) {
                  const uint32_t slot = batch.at[r];
                  if (slot >= batch.slots) return;
                  const float g = GradientOf(trained, batch, options, by_row.clip, r, slot)(d);
                  float& w = trained.rows[slot * trained.dim + d];
                  math::DecayWeight(params.rate * options.weight_decay, w);
                  const typename Formula::Row row =
                      by_row.shared == nullptr ? typename Formula::Row{} : by_row.shared[r];
                  UpdateElement<Formula>(params, row, g, w, trained.state + slot * trained.states,
                                         d, trained.dim,
                                         std::make_index_sequence<Formula::kSlots>());
                });
}

}  // namespace

void TakeChanges(Stream& stream, const TrainedRows& trained, const uint32_t* slots, int64_t count,
                 float* changes) {
  const int64_t floats = trained.floats();
  ForEachInRows(stream, "changes of rows", count, floats,
                [=] TESSERA_HOST_DEVICE(int64_t row, int64_t i) {
                  const uint32_t slot = slots[row];
                  float* const at_ps = trained.at_ps + slot * floats + i;
                  const float change = *NumberOf(trained, slot, i) - *at_ps;
                  changes[row * floats + i] = change;
                  *at_ps += change;
                });
}

void PutRows(Stream& stream, const TrainedRows& trained, const float* whole, const uint32_t* slots,
             const uint32_t* own, int64_t count, const float* changes) {
  const int64_t floats = trained.floats();
  ForEachInRows(stream, "rows to be trained", count, floats,
                [=] TESSERA_HOST_DEVICE(int64_t row, int64_t i) {
                  float number = whole[row * floats + i];
                  const uint32_t of = own == nullptr ? kNoChange : own[row];
                  if (of != kNoChange) number += changes[of * floats + i];
                  *NumberOf(trained, slots[row], i) = number;
                  trained.at_ps[slots[row] * floats + i] = number;
                });
}

void GatherRows(Stream& stream, const float* from, const uint32_t* rows, int64_t count, int64_t dim,
                float* to) {
  ForEachInRows(stream, "gradients of rows that are pushed", count, dim,
                [=] TESSERA_HOST_DEVICE(int64_t row, int64_t d) {
                  to[row * dim + d] = from[rows[row] * dim + d];
                });
}

template <typename Formula>
void TrainRows(Stream& stream, const TrainedRows& trained, const RowGradients& batch,
               const math::RowOptions& options, const typename Formula::Params& params) {
  using Row = typename Formula::Row;
  const bool clips = options.clip_norm > 0;
  ByRow<Formula> by_row;
  if (clips || kBeginsRows<Formula>) {
    static_assert(alignof(Row) <= alignof(float));
    const auto rows = static_cast<size_t>(batch.rows);
    float* const scratch = stream.Scratch(rows + (rows * sizeof(Row) + 3) / sizeof(float));
    if (!stream.status().ok()) return;
    if (clips) by_row.clip = scratch;
    if (kBeginsRows<Formula>) by_row.shared = reinterpret_cast<Row*>(scratch + rows);
  }
  if (clips) FindClips(stream, trained, batch, options, by_row.clip);
  if (kBeginsRows<Formula>) BeginRows<Formula>(stream, trained, batch, options, params, by_row);
  MoveElements<Formula>(stream, trained, batch, options, params, by_row);
}

#define TESSERA_TRAIN_ROWS(formula)                                                  \
  template void TrainRows<formula>(Stream&, const TrainedRows&, const RowGradients&, \
                                   const math::RowOptions&, const formula::Params&)
TESSERA_TRAIN_ROWS(math::Adadelta);
TESSERA_TRAIN_ROWS(math::Adagrad);
TESSERA_TRAIN_ROWS(math::Adam);
TESSERA_TRAIN_ROWS(math::Amsgrad);
TESSERA_TRAIN_ROWS(math::Ftrl);
TESSERA_TRAIN_ROWS(math::Momentum);
TESSERA_TRAIN_ROWS(math::Rmsprop);
TESSERA_TRAIN_ROWS(math::RmspropMomentum);
TESSERA_TRAIN_ROWS(math::RowWiseAdagrad);
TESSERA_TRAIN_ROWS(math::Sgd);
#undef TESSERA_TRAIN_ROWS

}  // namespace tessera::cuda

#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "worker/assignment/worker_metrics.h"
#include "worker/card/card_optimizer.h"
#include "worker/card/prepared_batch.h"
#include "worker/card/row_slots.h"
#include "worker/embeddings/embedding_plan.h"

namespace tessera::worker {

// Rows that a card keeps from batch to batch (train.row_cache), and may train: their memory on the
// card, and the worker's record of which row is in which slot. Errors are the stream's:
//   RESOURCE_EXHAUSTED   the card has no room now
//   FAILED_PRECONDITION  the card is too small, or the trained rows might not fit a push; a job
//                        that asks for that is not to be tried again
// Used by one thread, except for Find and Tell.
class KeptRows {
 public:
  struct Options {
    // The card's memory for rows, with the same number of slots for every key set; or `share` of
    // each table's rows, by SizeTo. Both 0: no rows are kept.
    uint64_t bytes = 0;
    double share = 0;
    WorkerMetrics* metrics = nullptr;
    TaskPool* pool = nullptr;  // shares the work of large batches; may be null
    // Both or neither. If set, the card can train the rows that it keeps, and takes memory for it.
    const std::vector<CardOptimizer>* optimizers = nullptr;  // by lookup
    const KeyRouter* router = nullptr;
  };
  // `plan`, `stream` and what the options point to are borrowed and outlive this object.
  KeptRows(const EmbeddingPlan* plan, cuda::Stream* stream, const Options& options);

  // Sets the number of slots to `share` of these rows, by table of the job. If some key set's slots
  // change by over a quarter, memory is taken anew and all kept rows are forgotten.
  void SizeTo(absl::Span<const uint64_t> table_rows);
  // Called before the first batch of a pipeline. A row is used in at most `max_age` batches after
  // the one that pulled it. `trains`: the batches change the rows, if there are optimizers; max_age
  // is then RowSlots::kLeavingBatches at least. If `trains` changes, all kept rows are forgotten.
  void Begin(uint32_t max_age, bool trains = false);
  // Forgets all kept rows; changes are lost.
  void Forget();

  // Decides which rows of a key set of the batch are kept, and where. Called for batches in their
  // order, by one thread at a time, and not during the calls above.
  void Find(size_t key_set, PreparedBatch* batch);
  // Says what to pull and where its rows will be. Called after Find, for one key set after another.
  // Thread-safe.
  void Tell(size_t key_set, PreparedBatch* batch) const;
  // The rows whose changes the ps lack. Called after the last batch; from then on these changes
  // count as written.
  struct Unwritten {
    RoutedKeys keys;
    std::vector<uint32_t> slots;  // [keys]
  };
  Unwritten TakeUnwritten(size_t key_set);
  // Whether Tell says for every key set what the card trains.
  bool trains() const { return trains_ && !slots_.empty(); }

  // As in cuda::BatchRows.
  uint32_t slots(size_t key_set) const { return slots_.empty() ? 0 : slots_[key_set].slots(); }
  float* rows(size_t lookup) const { return kept_.empty() ? nullptr : kept_[lookup].rows.data(); }
  // Only with optimizers.
  cuda::TrainedRows trained(size_t lookup) const;

 private:
  // Memory on the card for one lookup.
  struct Kept {
    cuda::Memory rows;  // [slots, dim]
    // Only with optimizers.
    cuda::Memory state;  // [slots, states]
    cuda::Memory at_ps;  // [slots, dim + states]
  };
  // Floats per slot.
  size_t SlotFloats(size_t lookup) const;
  // Takes memory. `slots`: by key set, rounded up.
  void Take(absl::Span<const uint32_t> slots);
  // FAILED_PRECONDITION: so many slots take more than the whole card.
  absl::Status CheckMemory(absl::Span<const uint32_t> slots) const;
  // FAILED_PRECONDITION: if the rows in all slots have changed, the push that ends a unit is too
  // large.
  absl::Status CheckChanges(absl::Span<const uint32_t> slots) const;
  // The two forms of Tell: for rows that the card only keeps, and for rows that it trains.
  void TellKept(size_t key_set, const RoutedKeys& routed, CardBatch* batch) const;
  void TellTrained(size_t key_set, const RoutedKeys& routed, CardBatch* batch) const;
  // Routes scratch->left, whose changes are to be pushed: left[i] goes to positions[i] of the
  // result. Puts left_slots in the same order.
  RoutedKeys RouteLeft(CardBatch::Scratch* scratch) const;

  const EmbeddingPlan& plan_;
  cuda::Stream& stream_;
  const double share_;
  WorkerMetrics* const metrics_;
  TaskPool* const pool_;
  const std::vector<CardOptimizer>* const optimizers_;
  const KeyRouter* const router_;
  uint32_t max_age_ = 0;
  bool trains_ = false;
  std::vector<Kept> kept_;       // by lookup; empty: no rows are kept
  std::vector<RowSlots> slots_;  // by key set; empty: no rows are kept
};

}  // namespace tessera::worker

#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "worker/batch_pipeline.h"
#include "worker/card_optimizer.h"
#include "worker/embedding.h"
#include "worker/row_slots.h"
#include "worker/worker_metrics.h"

namespace tessera::worker {

// Rows that a card keeps from batch to batch (train.row_cache), and may train: their memory there,
// and the worker's word on which of them is where. Errors are the stream's: RESOURCE_EXHAUSTED
// where the card has no room now; FAILED_PRECONDITION where it never has, or where what it trains
// might not fit a push: a job that asks for that is not to be tried again. Used by one thread, but
// for Find and Tell.
class KeptRows {
 public:
  struct Options {
    uint64_t bytes = 0;  // of the card, for as many slots of every key set; or:
    double share = 0;    // of the rows that each table has, by SizeTo; both 0: none are kept
    WorkerMetrics* metrics = nullptr;
    TaskPool* pool = nullptr;  // shares large batches; may be null
    // Both or neither: the card can train what it keeps, and takes memory for it.
    const std::vector<CardOptimizer>* optimizers = nullptr;  // by lookup
    const KeyRouter* router = nullptr;
  };
  // What the options point to, `plan` and `stream` are borrowed and outlive it.
  KeptRows(const EmbeddingPlan* plan, cuda::Stream* stream, const Options& options);

  // To the share of so many rows, by table of the job. Memory is taken anew, and what was kept
  // forgotten, where some key set's slots are to be over a quarter more or less.
  void SizeTo(absl::Span<const uint64_t> table_rows);
  // Before the first batch of a pipeline. A row is used in so many batches after the one that
  // pulled it. `trains`: with optimizers, the batches change the rows; a row is then used in
  // RowSlots::kLeavingBatches at least. Forgets what was kept for batches of the other kind.
  void Begin(uint32_t max_age, bool trains = false);
  // Changes are lost.
  void Forget();

  // Of batches in their order, by one thread at a time, and between those calls: which rows of a
  // key set of the batch, after those before it, are kept where.
  void Find(size_t key_set, PreparedBatch* batch);
  // Then, of one key set after another: what is to be pulled, and where its rows will be.
  // Thread-safe.
  void Tell(size_t key_set, PreparedBatch* batch) const;
  // After the last batch: whose changes the ps lacks. From then on they count as written.
  struct Unwritten {
    RoutedKeys keys;
    std::vector<uint32_t> slots;  // [keys]
  };
  Unwritten TakeUnwritten(size_t key_set);
  // Whether Find tells the card what to train, of every key set.
  bool trains() const { return trains_ && !slots_.empty(); }

  // As cuda::BatchRows has them.
  uint32_t slots(size_t key_set) const { return slots_.empty() ? 0 : slots_[key_set].slots(); }
  float* rows(size_t lookup) const { return kept_.empty() ? nullptr : kept_[lookup].rows.data(); }
  // With optimizers.
  cuda::TrainedRows trained(size_t lookup) const;

 private:
  // Of the card, by lookup.
  struct Kept {
    cuda::Memory rows;  // [slots, dim]
    // With optimizers.
    cuda::Memory state;  // [slots, states]
    cuda::Memory at_ps;  // [slots, dim + states]
  };
  // Floats of a slot.
  size_t SlotFloats(size_t lookup) const;
  void Take(absl::Span<const uint32_t> slots);  // by key set, rounded up
  // FAILED_PRECONDITION: so many rows take more than the whole card.
  absl::Status CheckMemory(absl::Span<const uint32_t> slots) const;
  // FAILED_PRECONDITION: if all of so many rows have changed, the push that ends a unit is too
  // large.
  absl::Status CheckChanges(absl::Span<const uint32_t> slots) const;
  // Of the batch's keys, for rows that the card keeps, and for those that it trains.
  void TellKept(size_t key_set, const RoutedKeys& routed, CardBatch* batch) const;
  void TellTrained(size_t key_set, const RoutedKeys& routed, CardBatch* batch) const;
  // scratch->left, whose changes are to be pushed, in the order of their ps: left[i] is at
  // positions[i], and left_slots follow.
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
  std::vector<Kept> kept_;       // by lookup; empty: none are kept
  std::vector<RowSlots> slots_;  // by key set; empty, too
};

}  // namespace tessera::worker

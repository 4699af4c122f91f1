#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "worker/batch_pipeline.h"
#include "worker/embedding.h"
#include "worker/row_slots.h"
#include "worker/worker_metrics.h"

namespace tessera::worker {

// Rows that a card keeps from batch to batch (train.row_cache): their memory there, and the
// worker's word on which of them is where. Errors are the stream's: RESOURCE_EXHAUSTED where the
// card has no room. Used by one thread, but for Find.
class KeptRows {
 public:
  struct Options {
    uint64_t bytes = 0;  // of the card, for as many slots of every key set; or:
    double share = 0;    // of the rows that each table has, by SizeTo; both 0: none are kept
    WorkerMetrics* metrics = nullptr;
    TaskPool* pool = nullptr;  // shares large batches; may be null
  };
  // `plan`, `stream`, metrics and pool are borrowed and outlive it.
  KeptRows(const EmbeddingPlan* plan, cuda::Stream* stream, const Options& options);

  // To the share of so many rows, by table of the job. Memory is taken anew, and what was kept
  // forgotten, where some key set's slots are to be over a quarter more or less.
  void SizeTo(absl::Span<const uint64_t> table_rows);
  // Before the first batch of a pipeline. A row is used in so many batches after the one that
  // pulled it.
  void Begin(uint32_t max_age) { max_age_ = max_age; }
  void Forget();

  // Of batches in their order, by one thread at a time, and between those calls: what is to be
  // pulled for a key set of the batch, and where its rows will be.
  void Find(size_t key_set, PreparedBatch* batch);

  // As cuda::BatchRows has them.
  uint32_t slots(size_t key_set) const { return slots_.empty() ? 0 : slots_[key_set].slots(); }
  float* rows(size_t lookup) const { return kept_.empty() ? nullptr : kept_[lookup].data(); }

 private:
  void Take(absl::Span<const uint32_t> slots);  // by key set, rounded up

  const EmbeddingPlan& plan_;
  cuda::Stream& stream_;
  const double share_;
  WorkerMetrics* const metrics_;
  TaskPool* const pool_;
  uint32_t max_age_ = 0;
  std::vector<cuda::Memory> kept_;  // by lookup: [slots, dim]; empty: none are kept
  std::vector<RowSlots> slots_;     // by key set; empty, too
  // Scratch of Find.
  std::vector<RowSlots::Place> places_;
  std::vector<uint32_t> at_, from_, to_;
};

}  // namespace tessera::worker

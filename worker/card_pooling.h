#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "cuda/stream.h"
#include "worker/batch_pipeline.h"
#include "worker/card_batch.h"
#include "worker/dense/executor.h"
#include "worker/embedding.h"
#include "worker/row_slots.h"
#include "worker/worker_metrics.h"

namespace tessera::worker {

// What PoolRows and UnpoolGradients do, on the executor's card: the distinct rows of a batch travel
// to it, and their gradients back. Rows may also be kept there from batch to batch: those are
// neither pulled nor copied. Which rows these are the worker decides while it prepares a batch, so
// that the card looks nothing up. Errors are the stream's.
class CardPooling {
 public:
  struct Options {
    uint64_t cache_bytes = 0;  // for kept rows; 0: none are kept
    WorkerMetrics* metrics = nullptr;
  };
  // `plan`, `executor` (which is on a card, and pools there from now on) and metrics are borrowed
  // and outlive it.
  CardPooling(const EmbeddingPlan* plan, Executor* executor, const Options& options);

  static constexpr uint32_t kAnyAge = UINT32_MAX;
  // Before the first batch of a pipeline, while nobody prepares. A row is used in so many batches
  // after the one that pulled it. What was kept is forgotten where `afresh`, or where batches were
  // prepared and not pooled.
  void Begin(uint32_t max_age, bool afresh);

  // The rest is for batches in one order. In the thread that prepares them, once their keys are
  // known: what is to be pulled for the batch, and where its rows will be.
  void Prepare(PreparedBatch* batch);

  // In the thread that computes, after Executor::Resize: fills its pooled inputs.
  void Pool(const PreparedBatch& batch);
  // After the backward pass of the batch that was pooled last has been given to the card: gradients
  // of its distinct rows, which are there after the stream's next Synchronize.
  void Unpool(const PreparedBatch& batch);
  // Then: gradients[lookup] [keys, dim], which are so large already.
  void CopyGradients(absl::Span<std::vector<float>> gradients) const;

 private:
  void FindRows(size_t key_set, PreparedBatch* batch);
  cuda::BatchRows RowsOf(size_t lookup, const PreparedBatch& batch) const;

  const EmbeddingPlan& plan_;
  Executor& executor_;
  cuda::Stream& stream_;
  const std::vector<PoolingGroup> groups_;
  WorkerMetrics* const metrics_;

  // Of the thread that prepares.
  uint32_t max_age_ = 0;
  uint64_t prepared_ = 0;
  std::vector<RowSlots> slots_;  // by key set; empty: no rows are kept
  std::vector<RowSlots::Place> places_;
  std::vector<uint32_t> at_, from_, to_;

  // Of the thread that computes.
  uint64_t pooled_ = 0;
  std::vector<cuda::Memory> kept_;  // by lookup: [slots, dim]
  cuda::Memory host_, device_;      // the batch's words, then each lookup's fresh rows
  std::vector<size_t> fresh_at_;    // by lookup, in both
  cuda::Memory gradients_, gradients_host_;
  std::vector<size_t> gradient_at_;  // by lookup, in both
};

}  // namespace tessera::worker

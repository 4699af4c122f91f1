#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "cuda/memory.h"
#include "cuda/staging_buffer.h"
#include "cuda/stream.h"
#include "worker/batch_pipeline.h"
#include "worker/card_batch.h"
#include "worker/dense/executor.h"
#include "worker/embedding.h"
#include "worker/kept_rows.h"
#include "worker/parameter_client.h"

namespace tessera::worker {

// What PoolRows and UnpoolGradients do, on the executor's card: the distinct rows of a batch travel
// to it, and their gradients back. Rows may also be kept there from batch to batch: those are
// neither pulled nor copied. Which rows these are the worker decides while it prepares a batch, so
// that the card looks nothing up. With KeptRows::Options::optimizers it trains them, too: their
// gradients stay on the card, and what is pushed of them is by how much they have changed. What a
// batch needs may travel while the one before it is computed, and what it gave be taken while the
// next one is: there are two sets of buffers, each of the size of the largest batch and a quarter
// more. Errors are the stream's.
class CardPooling {
 public:
  // `plan`, `executor` (which is on a card, and pools there from now on), metrics and pool, which
  // shares copies too, are borrowed and outlive it.
  CardPooling(const EmbeddingPlan* plan, Executor* executor, const KeptRows::Options& options);

  static constexpr uint32_t kAnyAge = UINT32_MAX;
  // Before the first batch of a pipeline, while nobody prepares, and where the rows that are kept
  // are a share, before Begin: KeptRows::SizeTo.
  void SizeKeptRows(absl::Span<const uint64_t> table_rows) { kept_.SizeTo(table_rows); }
  // Then: a row is used in so many batches after the one that pulled it. What was kept is forgotten
  // where `afresh`, or where batches were prepared and not pooled, with all changes of it that were
  // not taken. `trains`: as KeptRows::Begin.
  void Begin(uint32_t max_age, bool afresh, bool trains = false);

  // So many threads are to prepare batches: three quarters of those of the dense graph, to whom a
  // card leaves little to do, up to BatchPipeline::kMostThreads.
  size_t PrepareThreads() const;
  // Once the batch's keys are known: what the card is to be told of them. Thread-safe.
  void Prepare(PreparedBatch* batch) const;

  // What follows Prepare is for batches in one order, by one thread at a time: which rows are kept.
  void Place(PreparedBatch* batch);
  // Then, before the batch's pull: what is to be pulled, and where its rows will be. Thread-safe.
  void Tell(PreparedBatch* batch) const;

  // The rest is for batches in that order, too. In the thread that computes, after
  // Executor::Resize: fills its pooled inputs.
  void Pool(const PreparedBatch& batch);
  // In place of that: of a batch without samples, which is neither pooled nor staged.
  void Skip() { ++pooled_; }
  // After the backward pass of the batch that was pooled last has been given to the card: gradients
  // of its distinct rows, which are there after the stream's next Synchronize.
  void Unpool(const PreparedBatch& batch);
  // Once all work of the batch that was pooled last has been given to the card, which goes on
  // meanwhile: what the next batch needs starts for the card beside it; Pool starts the rest.
  // `rows`: the pull of its rows, which is waited for no longer than the card works; null: they
  // are pulled later.
  void StageAhead(const PreparedBatch& next, PendingCall* rows);
  // After the Synchronize, of the batch that was pooled last, or of the one before it:
  // gradients[lookup] [PushedKeys, dim], which are so large already.
  void CopyGradients(const PreparedBatch& batch, absl::Span<std::vector<float>> gradients) const;

  // Where the card trains its rows, after the Synchronize of the batch that was pooled last: a
  // lookup of which it has a gradient beyond CardOptimizer::largest_gradient, or not finite.
  std::optional<size_t> LookupBeyond(const PreparedBatch& batch) const;
  // Then, where there is none: one step of the rows that it keeps, which the next batch finds; not
  // where the batch is left out.
  void Train(const PreparedBatch& batch, double learning_rate_scale);
  // Of rows that left their slots, or were pulled again, for this batch.
  struct Changes {
    const RoutedKeys* keys = nullptr;
    const float* values = nullptr;  // [keys, dim + optimizer floats]
  };
  // Valid until the next Pool but one, or TakeChanges; without keys where there are none.
  Changes ChangesOf(size_t lookup, const PreparedBatch& batch) const;
  // After the last batch of a pipeline: all changes that the ps lack, by lookup; waits for the
  // card. Valid until the next call.
  std::vector<Changes> TakeChanges();

 private:
  // A batch on the card: its words, then each lookup's fresh rows.
  struct Staged {
    explicit Staged(cuda::Stream& stream) : buffer(stream) {}
    cuda::StagingBuffer buffer;
    uint64_t batch = 0;  // its number; 0: none yet
    bool has_rows = false;
    std::vector<size_t> fresh_at, whole_at;  // by lookup
  };
  Staged& StagedOf(const PreparedBatch& batch) { return staged_[batch.card.number() % 2]; }
  // What has not started yet.
  void StartWords(const PreparedBatch& batch);
  void StartRows(const PreparedBatch& batch);
  cuda::BatchRows RowsOf(size_t lookup, const PreparedBatch& batch);
  // Before the batch is pooled: rows that were kept give their places to those that come.
  void KeepRows(const PreparedBatch& batch);
  void TakeAndPut(const PreparedBatch& batch);
  // Of the batch's rows, or of those whose gradients are pushed, one lookup after another;
  // begins[lookup]. Returns how many floats all have.
  size_t PlaceGradients(const PreparedBatch& batch, bool pushed, std::vector<size_t>* begins) const;

  // Of rows in these slots; waits for the card.
  void CopyChanges(size_t lookup, absl::Span<const uint32_t> slots, float* to);
  void CopyFloats(const float* from, size_t n, float* to) const;

  const EmbeddingPlan& plan_;
  Executor& executor_;
  cuda::Stream& stream_;
  const std::vector<PoolingGroup> groups_;
  TaskPool* const pool_;
  KeptRows kept_;

  // Batches, which are numbered from 1 on.
  uint64_t placed_ = 0;  // of the thread that places
  uint64_t pooled_ = 0;  // of the thread that computes, as is the rest
  std::array<Staged, 2> staged_;
  // What a batch gives: the caller takes what one gave while the card works on the next.
  struct Given {
    cuda::Memory gradients;         // that are pushed
    std::vector<size_t> pushed_at;  // by lookup
    size_t beyond_at = 0;           // where the card trains: [lookups], how many gradients are
    cuda::Memory changes;
    std::vector<size_t> change_at;
  };
  Given& GivenBy(const PreparedBatch& batch) { return given_[batch.card.number() % 2]; }
  const Given& GivenBy(const PreparedBatch& batch) const { return given_[batch.card.number() % 2]; }
  std::array<Given, 2> given_;       // the machine's
  cuda::Memory gradients_;           // of all rows of the batch, on the card
  std::vector<size_t> gradient_at_;  // by lookup
  // Where the card trains its rows.
  const std::vector<CardOptimizer>* const optimizers_;  // by lookup
  cuda::Memory pushed_, changes_;                       // on the card, as Given has them
  std::vector<KeptRows::Unwritten> unwritten_;          // by key set
  std::vector<std::vector<float>> last_changes_;        // by lookup
};

}  // namespace tessera::worker

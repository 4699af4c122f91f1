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
#include "worker/card/card_batch.h"
#include "worker/card/kept_rows.h"
#include "worker/card/prepared_batch.h"
#include "worker/dense/executor.h"
#include "worker/embeddings/embedding_plan.h"
#include "worker/parameters/parameter_client.h"

namespace tessera::worker {

// Does what PoolRows and UnpoolGradients do on the executor's card: the distinct rows of a batch go
// to the card, and their gradients come back. The card may keep rows from batch to batch: these are
// neither pulled nor copied. The worker decides which rows while it prepares a batch, so the card
// looks nothing up. With KeptRows::Options::optimizers the card also trains the kept rows: their
// gradients stay there, and the worker pushes by how much the rows have changed. There are two sets
// of buffers, so that one batch's inputs are copied and another's results are taken while the card
// computes. Each set has the size of the largest batch and a quarter more. Errors are the stream's.
class CardPooling {
 public:
  // `executor` is on a card, and pools there from now on. It, `plan`, metrics and pool are borrowed
  // and outlive this object. The pool's threads share large copies too.
  CardPooling(const EmbeddingPlan* plan, Executor* executor, const KeptRows::Options& options);

  static constexpr uint32_t kAnyAge = UINT32_MAX;
  // As KeptRows::SizeTo. Called before Begin, while no thread prepares batches, if the card keeps a
  // share of the rows.
  void SizeKeptRows(absl::Span<const uint64_t> table_rows) { kept_.SizeTo(table_rows); }
  // Called before the first batch of a pipeline, while no thread prepares batches. A row is used in
  // at most `max_age` batches after the one that pulled it. All kept rows are forgotten with
  // `afresh`, or if batches were placed and not pooled; so are changes that were not taken.
  // `trains`: as in KeptRows::Begin.
  void Begin(uint32_t max_age, bool afresh, bool trains = false);

  // How many threads should prepare batches: three quarters of the dense graph's threads, which
  // have little to do beside a card; at most kMostThreads.
  size_t PrepareThreads() const;
  // More threads than these find no use; each is one more batch in memory.
  static constexpr int kMostThreads = 12;
  // Lists the batch's pooling entries for the card, once its keys are known. Thread-safe.
  void Prepare(PreparedBatch* batch) const;

  // Decides which rows of the batch the card keeps. Called after Prepare for batches in one order,
  // by one thread at a time.
  void Place(PreparedBatch* batch);
  // Says what to pull and where its rows will be. Called after Place, before the batch's pull.
  // Thread-safe.
  void Tell(PreparedBatch* batch) const;

  // What follows is called by the thread that computes, for batches in the order of Place. Pool
  // fills the executor's pooled inputs, after Executor::Resize.
  void Pool(const PreparedBatch& batch);
  // Replaces Pool for a batch without samples, which is neither pooled nor staged.
  void Skip() { ++pooled_; }
  // Starts the gradients of the batch's distinct rows, once the card has been given its backward
  // pass. They are there after the stream's next Synchronize. The batch was pooled last.
  void Unpool(const PreparedBatch& batch);
  // Copies to the card what the next batch needs, while the card computes the batch that was pooled
  // last; Pool copies the rest. Called once the card has been given all work of that batch. `rows`:
  // the pull of the next batch's rows, waited for only as long as the card works; null: these rows
  // are pulled later.
  void StageAhead(const PreparedBatch& next, PendingCall* rows);
  // Fills gradients[lookup], whose size is [PushedKeys, dim] already. Called after the Synchronize
  // of the batch, which was pooled last or is the one before that.
  void CopyGradients(const PreparedBatch& batch, absl::Span<std::vector<float>> gradients) const;

  // For a card that trains its rows: a lookup with a gradient that is not finite or is beyond
  // CardOptimizer::largest_gradient. Called after the Synchronize of the batch pooled last.
  std::optional<size_t> LookupBeyond(const PreparedBatch& batch) const;
  // Takes one step of the kept rows, which the next batch finds. Called if LookupBeyond finds none
  // and the step of the batch counts.
  void Train(const PreparedBatch& batch, double learning_rate_scale);
  // By how much rows have changed.
  struct Changes {
    const RoutedKeys* keys = nullptr;
    const float* values = nullptr;  // [keys, dim + optimizer floats]
  };
  // Changes of rows that left their slots for this batch, or were pulled again for it. Valid until
  // Pool has been called twice more, or TakeChanges once. keys is null if there are none.
  Changes ChangesOf(size_t lookup, const PreparedBatch& batch) const;
  // All changes that the ps lack, by lookup. Called after the last batch of a pipeline; waits for
  // the card. Valid until the next call.
  std::vector<Changes> TakeChanges();

 private:
  // A batch on the card: its words, then each lookup's pulled rows.
  struct Staged {
    explicit Staged(cuda::Stream& stream) : buffer(stream) {}
    cuda::StagingBuffer buffer;
    uint64_t batch = 0;  // its number; 0: none yet
    bool has_rows = false;
    std::vector<size_t> fresh_at, whole_at;  // by lookup
  };
  Staged& StagedOf(const PreparedBatch& batch) { return staged_[batch.card.number() % 2]; }
  // Start the copies of the batch's words and rows, unless they have started already.
  void StartWords(const PreparedBatch& batch);
  void StartRows(const PreparedBatch& batch);
  cuda::BatchRows RowsOf(size_t lookup, const PreparedBatch& batch);
  // Before the batch is pooled: pulled rows go to their slots, in place of rows that leave.
  void KeepRows(const PreparedBatch& batch);
  // The same for rows that the card trains; takes the changes of those that leave first.
  void TakeAndPut(const PreparedBatch& batch);
  // Sets begins[lookup] for gradients that lie one lookup after another: of all rows of the batch,
  // or of the `pushed` ones. Returns the number of floats.
  size_t PlaceGradients(const PreparedBatch& batch, bool pushed, std::vector<size_t>* begins) const;

  // Copies the changes of the rows in these slots; waits for the card.
  void CopyChanges(size_t lookup, absl::Span<const uint32_t> slots, float* to);
  void CopyFloats(const float* from, size_t n, float* to) const;

  const EmbeddingPlan& plan_;
  Executor& executor_;
  cuda::Stream& stream_;
  const std::vector<PoolingGroup> groups_;
  TaskPool* const pool_;
  KeptRows kept_;

  // The last batch's number, from 1 on.
  uint64_t placed_ = 0;  // used by the thread that places
  uint64_t pooled_ = 0;  // used by the thread that computes, as all members below
  std::array<Staged, 2> staged_;
  // Results of a batch: the caller takes them while the card works on the next batch.
  struct Given {
    cuda::Memory gradients;         // to push
    std::vector<size_t> pushed_at;  // by lookup
    size_t beyond_at = 0;           // if the card trains: where counts [lookups] begin
    cuda::Memory changes;
    std::vector<size_t> change_at;
  };
  Given& GivenBy(const PreparedBatch& batch) { return given_[batch.card.number() % 2]; }
  const Given& GivenBy(const PreparedBatch& batch) const { return given_[batch.card.number() % 2]; }
  std::array<Given, 2> given_;       // in the machine's memory
  cuda::Memory gradients_;           // on the card, of all rows of the batch
  std::vector<size_t> gradient_at_;  // by lookup
  // If the card trains its rows; else null and empty.
  const std::vector<CardOptimizer>* const optimizers_;  // by lookup
  cuda::Memory pushed_, changes_;                       // on the card: what Given gets
  std::vector<KeptRows::Unwritten> unwritten_;          // by key set
  std::vector<std::vector<float>> last_changes_;        // by lookup
};

}  // namespace tessera::worker

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "worker/card_batch.h"
#include "worker/data/batch.h"
#include "worker/embedding.h"
#include "worker/parameter_client.h"

namespace tessera::worker {

// One mini-batch on its way through a step.
struct PreparedBatch {
  uint64_t index = 0;  // of the batch within its window or unit
  Batch batch;
  std::vector<BatchKeys> keys;  // by key set
  // By lookup: [keys, dim], of those keys that are pulled (PulledKeys), filled by the pull.
  std::vector<std::vector<float>> rows;
  // By lookup: whole rows for a card to train, filled by the pull, too.
  std::vector<std::vector<float>> whole_rows;
  CardBatch card;  // where rows are pooled on a card
  // What goes ahead of the pull, if anything does; reads `keys`.
  std::unique_ptr<PendingCall> ahead;
};

// Those whose rows a pull brings: all, or those that a card has not kept.
inline const RoutedKeys& PulledKeys(const PreparedBatch& batch, size_t key_set) {
  if (batch.card.rows().empty() || batch.card.rows()[key_set].asks_for_all) {
    return batch.keys[key_set].routed;
  }
  return batch.card.rows()[key_set].asked;
}

// What a card that trains its rows is told of a key set's; null: it trains none.
inline const CardBatch::Rows::Trained* TrainedRowsOf(const PreparedBatch& batch, size_t key_set) {
  if (batch.card.rows().empty() || !batch.card.rows()[key_set].trained) return nullptr;
  return &*batch.card.rows()[key_set].trained;
}

// Those whose gradients are pushed: all, or those of rows that a card does not train.
inline const RoutedKeys& PushedKeys(const PreparedBatch& batch, size_t key_set) {
  return TrainedRowsOf(batch, key_set) == nullptr ? batch.keys[key_set].routed
                                                  : batch.card.rows()[key_set].asked;
}

using SpareBatches = std::vector<std::unique_ptr<PreparedBatch>>;

// Prepares batches [begin, end) in threads of its own, with one thread at most kDepth ahead and
// with more so many more, so that gathering and key work overlap with the network and the dense
// compute. The consumer is one thread.
class BatchPipeline {
 public:
  static constexpr size_t kDepth = 2;
  // More threads than these find no use; each is one more batch in memory.
  static constexpr int kMostThreads = 12;
  // What the functions use outlives the pipeline.
  struct Steps {
    // Fills a batch, whose index is set, as far as that tells; in thread number `thread`, beside
    // the others.
    std::function<void(size_t thread, PreparedBatch* batch)> fill;
    // Then, of one batch after another in their order. Null: nothing.
    std::function<void(PreparedBatch* batch)> place = nullptr;
    // Then, beside other batches again: the rest. Null: none.
    std::function<void(PreparedBatch* batch)> finish = nullptr;
  };

  // `spare`: batches whose memory is taken, and to which it comes back in the end; outlives the
  // pipeline. Null: they begin and go with it.
  BatchPipeline(uint64_t begin, uint64_t end, size_t threads, Steps steps,
                SpareBatches* spare = nullptr);
  ~BatchPipeline();

  // The next batch in order; null after the last.
  std::unique_ptr<PreparedBatch> Next() ABSL_LOCKS_EXCLUDED(mu_);
  // Gives buffers back for reuse.
  void Recycle(std::unique_ptr<PreparedBatch> batch) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run(size_t thread) ABSL_LOCKS_EXCLUDED(mu_);
  // Null: there is nothing more to begin.
  std::unique_ptr<PreparedBatch> Begin() ABSL_LOCKS_EXCLUDED(mu_);
  // When all batches before it have been placed; false: they are no longer wanted.
  bool AwaitTurn(uint64_t index) ABSL_LOCKS_EXCLUDED(mu_);
  void Placed() ABSL_LOCKS_EXCLUDED(mu_);
  // When all batches before it are ready, so is it.
  void Ready(std::unique_ptr<PreparedBatch> batch) ABSL_LOCKS_EXCLUDED(mu_);
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stopping_ || begun_ == end_ || begun_ - taken_ < ahead_;
  }
  bool HasNext() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return taken_ == end_ || !ready_.empty();
  }

  const uint64_t end_;
  const uint64_t ahead_;  // batches that may be begun and not yet taken
  const Steps steps_;
  SpareBatches* const kept_spare_;

  absl::Mutex mu_;
  // All batches below these are so far.
  uint64_t begun_ ABSL_GUARDED_BY(mu_);
  uint64_t placed_ ABSL_GUARDED_BY(mu_);
  uint64_t taken_ ABSL_GUARDED_BY(mu_);
  std::deque<std::unique_ptr<PreparedBatch>> ready_ ABSL_GUARDED_BY(mu_);
  SpareBatches spare_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace tessera::worker

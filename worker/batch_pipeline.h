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

// Prepares batches [begin, end) in a thread of its own, at most kDepth ahead, so that gathering and
// key work overlap with the network and the dense compute. The consumer is one thread.
class BatchPipeline {
 public:
  static constexpr size_t kDepth = 2;
  // Fills batch, keys and the sizes of rows for batch `index`; runs on the pipeline's thread. What
  // it uses outlives the pipeline.
  using Fill = std::function<void(uint64_t index, PreparedBatch* batch)>;

  BatchPipeline(uint64_t begin, uint64_t end, Fill fill);
  ~BatchPipeline();

  // The next batch in order; null after the last.
  std::unique_ptr<PreparedBatch> Next() ABSL_LOCKS_EXCLUDED(mu_);
  // Gives buffers back for reuse.
  void Recycle(std::unique_ptr<PreparedBatch> batch) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run(uint64_t begin, uint64_t end) ABSL_LOCKS_EXCLUDED(mu_);
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stopping_ || ready_.size() < kDepth;
  }
  bool HasNext() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return finished_ || !ready_.empty(); }

  const Fill fill_;

  absl::Mutex mu_;
  std::deque<std::unique_ptr<PreparedBatch>> ready_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<PreparedBatch>> spare_ ABSL_GUARDED_BY(mu_);
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace tessera::worker

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "worker/card/prepared_batch.h"

namespace tessera::worker {

using SpareBatches = std::vector<std::unique_ptr<PreparedBatch>>;

// Prepares batches [begin, end) in threads of its own, so that gathering and key work overlap with
// the network and the dense compute. One thread prepares at most kDepth batches ahead; each further
// thread adds one. The consumer is one thread.
class BatchPipeline {
 public:
  static constexpr size_t kDepth = 2;
  // The three steps of preparing a batch. What the functions use outlives the pipeline.
  struct Steps {
    // First: fills a batch whose index is set, in thread number `thread`. Several batches are
    // filled at once.
    std::function<void(size_t thread, PreparedBatch* batch)> fill;
    // Second: called for one batch after another, in their order. Null: nothing to do.
    std::function<void(PreparedBatch* batch)> place = nullptr;
    // Third: does the rest, for several batches at once. Null: nothing to do.
    std::function<void(PreparedBatch* batch)> finish = nullptr;
  };

  // `spare`: batches to reuse; the pipeline takes them and gives all of its batches back at its
  // end. Borrowed, outlives the pipeline. Null: batches are made and freed by the pipeline.
  BatchPipeline(uint64_t begin, uint64_t end, size_t threads, Steps steps,
                SpareBatches* spare = nullptr);
  ~BatchPipeline();

  // The next batch in order; null after the last.
  std::unique_ptr<PreparedBatch> Next() ABSL_LOCKS_EXCLUDED(mu_);
  // Gives buffers back for reuse.
  void Recycle(std::unique_ptr<PreparedBatch> batch) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run(size_t thread) ABSL_LOCKS_EXCLUDED(mu_);
  // The next batch to prepare; null: there is none, or the pipeline stops.
  std::unique_ptr<PreparedBatch> Begin() ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until all batches before `index` have been placed; false: the pipeline stops.
  bool AwaitTurn(uint64_t index) ABSL_LOCKS_EXCLUDED(mu_);
  void Placed() ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until all batches before this one are ready, then hands it to the consumer.
  void Ready(std::unique_ptr<PreparedBatch> batch) ABSL_LOCKS_EXCLUDED(mu_);
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stopping_ || begun_ == end_ || begun_ - taken_ < ahead_;
  }
  bool HasNext() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return taken_ == end_ || !ready_.empty();
  }

  const uint64_t end_;
  const uint64_t ahead_;  // at most so many batches are begun and not yet taken
  const Steps steps_;
  SpareBatches* const kept_spare_;

  absl::Mutex mu_;
  // Each counts batches in their order: those below it have been begun, placed or taken.
  uint64_t begun_ ABSL_GUARDED_BY(mu_);
  uint64_t placed_ ABSL_GUARDED_BY(mu_);
  uint64_t taken_ ABSL_GUARDED_BY(mu_);
  std::deque<std::unique_ptr<PreparedBatch>> ready_ ABSL_GUARDED_BY(mu_);
  SpareBatches spare_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace tessera::worker

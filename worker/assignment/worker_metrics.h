#pragma once

#include <string>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/metrics/metrics.h"

namespace tessera::worker {

// What a worker counts, over all its jobs. The seconds are those of the thread that trains, added
// up step by step; together they are nearly all of its time. Thread-safe.
struct WorkerMetrics {
  // `registry` outlives this.
  explicit WorkerMetrics(MetricsRegistry& registry);

  Counter& steps;
  Counter& samples;
  Counter& skipped_steps;  // steps left out because gradients were beyond float16
  // Records that could not be read: of training data each once, in its first epoch; of others in
  // each unit.
  Counter& bad_train_records;
  Counter& bad_evaluation_records;
  Counter& bad_prediction_records;
  // Distinct rows of batches, if a card keeps rows (train.row_cache).
  Counter& card_rows_kept;     // the card had them
  Counter& card_rows_pulled;   // it did not
  Counter& card_rows_evicted;  // gave their slots to others
  Counter& card_rows_written;  // the card had trained them, and their changes were pushed
  Counter& card_row_ages;      // sum of ages of kept rows in batches; / card_rows_kept: staleness
  Counter& read_seconds;       // waiting for records, or for a batch of them to be prepared
  Counter& pull_seconds;       // making pulls and waiting for their rows
  Counter& compute_seconds;    // forward and backward
  Counter& reduce_seconds;     // summing dense gradients with other workers
  Counter& push_seconds;       // making a push and waiting for the one before

  // The seconds so far, as a text for the log.
  std::string TimeByPart() const;
};

// Divides the time of one thread among counters. Not thread-safe.
class Stopwatch {
 public:
  // Adds the seconds since the last call, or since construction.
  void AddTo(Counter& seconds) {
    const absl::Duration now = SystemClock().Monotonic();
    seconds.Increment(absl::ToDoubleSeconds(now - since_));
    since_ = now;
  }

 private:
  absl::Duration since_ = SystemClock().Monotonic();
};

}  // namespace tessera::worker

#pragma once

#include <cstdint>
#include <deque>

#include "absl/time/time.h"
#include "master/run/training_history.h"
#include "tessera/v1/master_state.pb.h"
#include "tessera/v1/work.pb.h"

namespace tessera::master {

// Figures for people of how fast and how well training goes, from the units that workers report.
// Time outside Resume..Pause (evaluation, checkpoints) does not count. Not thread-safe.
class Progress {
 public:
  explicit Progress(v1::JobRecord* record)  // outlives this
      : record_(record), history_(record->mutable_status()->mutable_history()) {}

  // Called before a run's first unit: training begins after `steps_done` updates.
  void Begin(uint64_t steps_done) { history_.Begin(steps_done); }
  void Resume(absl::Duration now);
  void Pause(absl::Duration now);
  // `steps_done`: with this unit. `wall`: the same moment as `now`.
  void UnitDone(const v1::UnitResult& result, uint64_t steps_done, absl::Duration now,
                absl::Time wall);
  // Brings the figures of record->status() up to date. `steps_left` 0: unknown.
  void Fill(uint64_t steps_done, uint64_t total_steps, absl::Duration now);

 private:
  struct Report {
    absl::Duration at;  // training time
    uint64_t samples;
    double loss_sum;
    double auc;
  };
  absl::Duration TrainingTime(absl::Duration now) const;
  void Account(absl::Duration now);

  v1::JobRecord* const record_;
  TrainingHistory history_;
  bool running_ = false;
  absl::Duration resumed_;    // monotonic clock
  absl::Duration accounted_;  // monotonic clock: the record has the training time up to here
  absl::Duration before_;     // training time of this run until resumed_
  std::deque<Report> recent_;
  absl::Duration last_unit_;          // training time of this run
  uint64_t first_step_ = UINT64_MAX;  // of this run
};

}  // namespace tessera::master

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/window.h"
#include "master/plan/training_plan.h"

// Parts that the sync and the async form of TrainingPlan share.
namespace tessera::master {

using Windows = std::vector<JoinedRanges>;

// The shapes of windows: `first` for the epoch that a position is within, which may have begun with
// another number of workers; `later` for the epochs after it.
struct WindowShapes {
  uint64_t first_epoch = 0;
  WindowOptions first;
  uint32_t first_workers = 1;
  WindowOptions later;
  uint32_t later_workers = 1;
  // Of the files, as in Position.
  uint64_t records = 0;
  uint64_t files = 0;

  const WindowOptions& Of(uint64_t epoch) const { return epoch == first_epoch ? first : later; }
  // Sets the fields of a position within the epoch that describe its windows.
  void Describe(uint64_t epoch, v1::Position& position) const {
    position.set_window_records(Of(epoch).window_records);
    position.set_window_workers(epoch == first_epoch ? first_workers : later_workers);
    position.set_epoch_records(records);
    position.set_epoch_files(files);
    if (Of(epoch).begin == 0) return;
    position.set_epoch_begin(Of(epoch).begin);
    position.set_epoch_shard_records(Of(epoch).shard_records);
  }
};

// The windows of an epoch and of the one after it. Not thread-safe.
class EpochWindowCache {
 public:
  EpochWindowCache(std::vector<v1::FileRecords> files, const WindowShapes& shapes)
      : files_(std::move(files)), shapes_(shapes) {}
  const WindowShapes& shapes() const { return shapes_; }
  const Windows& Of(uint64_t epoch) {
    for (const Entry& entry : entries_) {
      if (entry.epoch == epoch) return *entry.windows;
    }
    if (entries_.size() == 2) {
      entries_.erase(entries_[0].epoch < entries_[1].epoch ? entries_.begin()
                                                           : entries_.begin() + 1);
    }
    auto windows = std::make_unique<Windows>();
    for (auto& window : EpochWindows(files_, epoch, shapes_.Of(epoch))) {
      windows->emplace_back(std::move(window));
    }
    entries_.push_back({epoch, std::move(windows)});
    return *entries_.back().windows;
  }

 private:
  struct Entry {
    uint64_t epoch;
    std::unique_ptr<Windows> windows;
  };
  const std::vector<v1::FileRecords> files_;
  const WindowShapes shapes_;
  std::vector<Entry> entries_;
};

// The number of batches of a unit of about `unit_seconds`, from the times that units took.
class UnitSize {
 public:
  explicit UnitSize(const PlanOptions& options)
      : unit_seconds_(options.unit_seconds), batches_(options.first_unit_batches) {}
  uint64_t batches() const { return batches_; }
  // How many units of unit_seconds so many batches make; units of first_unit_batches as long as no
  // time is known.
  double Units(uint64_t batches) const {
    const double one =
        batch_seconds_ > 0 ? batch_seconds_ / unit_seconds_ : 1 / static_cast<double>(batches_);
    return one * static_cast<double>(batches);
  }
  void Measured(uint64_t batches, double seconds) {
    if (batches == 0 || !(seconds > 0)) return;
    const double one = seconds / static_cast<double>(batches);
    batch_seconds_ = batch_seconds_ == 0 ? one : 0.7 * batch_seconds_ + 0.3 * one;
    // At most four times as many batches as the last: the first units say little about the rate.
    const double wanted = std::min(unit_seconds_ / batch_seconds_, 4.0 * batches_);
    batches_ = static_cast<uint64_t>(std::clamp(std::round(wanted), 1.0, 1e6));
  }

 private:
  const double unit_seconds_;
  uint64_t batches_;
  double batch_seconds_ = 0;
};

// The next step above `step` that has a barrier; UINT64_MAX: none.
uint64_t NextBarrierStep(const PlanOptions& options, uint64_t step);
// What is due when `step` has just been reached, or `epochs_done` epochs have just been completed.
Due DueAtStep(const PlanOptions& options, uint64_t step);
Due DueAtEpochEnd(const PlanOptions& options, uint64_t epochs_done);
inline bool IsAny(const Due& due) {
  return due.evaluate || due.checkpoint || due.finished || due.requested;
}
inline Due operator|(const Due& a, const Due& b) {
  return {a.evaluate || b.evaluate, a.checkpoint || b.checkpoint, a.finished || b.finished,
          a.requested || b.requested};
}
inline bool IsFinished(const PlanOptions& options, uint64_t epochs_done, uint64_t step) {
  return (options.epochs > 0 && epochs_done >= options.epochs) ||
         (options.steps > 0 && step >= options.steps);
}

// Records in a window. Sync: those of all ranks. Async: a multiple of the batch, small enough that
// each of several workers gets about 16 windows an epoch and they end it together.
uint64_t WindowRecords(const PlanOptions& options, uint64_t records);

// `state`: null, or the state of a plan of the same form with as many ranks.
std::unique_ptr<TrainingPlan> NewSyncPlan(const PlanOptions& options,
                                          std::vector<v1::FileRecords> files,
                                          const WindowShapes& shapes, const v1::Position& start,
                                          const v1::PlanState* state);
std::unique_ptr<TrainingPlan> NewAsyncPlan(const PlanOptions& options,
                                           std::vector<v1::FileRecords> files,
                                           const WindowShapes& shapes, const v1::Position& start,
                                           const v1::PlanState* state);

}  // namespace tessera::master

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "master/actions/action.h"
#include "master/run/job_run.h"

namespace tessera::master {

// A job that has begun: its run, if any, and the actions under way for this run or for earlier runs
// of the job. Jobs share nothing of this. A pure core. Not thread-safe.
class JobSlot {
 public:
  // Borrowed, outliving the slot.
  explicit JobSlot(v1::JobRecord* record) : record_(record) {}

  v1::JobRecord* record() const { return record_; }
  // Null: the job has no run; it restarts or has ended.
  JobRun* run() { return run_.get(); }
  const JobRun* run() const { return run_.get(); }
  // The run's actions begin when those of the run before are done.
  void Begin(std::unique_ptr<JobRun> run) { run_ = std::move(run); }
  // The run is over, and its actions under way are of no use. Returns it.
  std::unique_ptr<JobRun> End();
  // Closes as soon as the foreground is free; CloseWhenOpen: once the run has opened its ps.
  void Close(ClosePs close) { close_.push_back(std::move(close)); }
  void CloseWhenOpen(std::optional<ClosePs> close) { close_when_open_ = std::move(close); }

  // The next action of a lane, which gets the number `id`; nullopt: none, or the lane has one under
  // way.
  std::optional<Work> TakeAction(Lane lane, uint64_t id);
  // The action is one of this job's that are under way.
  bool Has(uint64_t action) const;
  void ActionDone(uint64_t action, ActionResult result, const Now& now);
  // Adds actions under way that serve a run that is over, or nobody any more: they may be
  // cancelled.
  void AddUnwanted(std::vector<uint64_t>& ids) const;
  // `ps`: those that the action waits for.
  void SetUnanswered(uint64_t action, std::vector<std::string> ps);
  // Nothing is under way, nothing waits to be done, and there is no run.
  bool IsIdle() const;
  // Nobody needs that generation of the job on that ps any more.
  bool IsDoneWith(uint64_t ps, uint64_t generation) const;

  // The job has rows of so many bytes; most_row_bytes is the largest number.
  void SeeRows(uint64_t bytes) { most_row_bytes_ = std::max(most_row_bytes_, bytes); }
  uint64_t most_row_bytes() const { return most_row_bytes_; }

  // A job that restarts does not start before this.
  absl::Duration retry_at;

 private:
  struct UnderWay {
    uint64_t id = 0;      // 0: nothing
    bool of_run = false;  // of run_, as it is now
    bool close = false;
  };
  UnderWay& lane(Lane lane) { return under_way_[static_cast<int>(lane)]; }
  const UnderWay& lane(Lane lane) const { return under_way_[static_cast<int>(lane)]; }

  v1::JobRecord* const record_;
  std::unique_ptr<JobRun> run_;
  std::deque<ClosePs> close_;
  std::optional<ClosePs> close_when_open_;  // ps that the job has left
  std::array<UnderWay, kLanes> under_way_;
  uint64_t most_row_bytes_ = 0;
};

}  // namespace tessera::master

#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "master/action.h"
#include "master/job_run.h"

namespace tessera::master {

// A job that has begun: the run that it has, if any, and what is done outside for it, or for runs
// of it that are over. Jobs have nothing of that in common. A pure core. Not thread-safe.
class JobSlot {
 public:
  // Borrowed, outliving the slot.
  explicit JobSlot(v1::JobRecord* record) : record_(record) {}

  v1::JobRecord* record() const { return record_; }
  // Null: it has none, and restarts, or has ended.
  JobRun* run() { return run_.get(); }
  const JobRun* run() const { return run_.get(); }
  // Its actions begin when those of the run before are done.
  void Begin(std::unique_ptr<JobRun> run) { run_ = std::move(run); }
  // The run is over, and what is under way for it of no use.
  std::unique_ptr<JobRun> End();
  // Is done as soon as the foreground is free; or, later, when the run has opened its ps.
  void Close(ClosePs close) { close_.push_back(std::move(close)); }
  void CloseWhenOpen(std::optional<ClosePs> close) { close_when_open_ = std::move(close); }

  // What is to be done next in a lane, under the number `id`; nullopt: nothing, or the lane is
  // under way.
  std::optional<Work> TakeAction(Lane lane, uint64_t id);
  // It is under way.
  bool Has(uint64_t action) const;
  void ActionDone(uint64_t action, ActionResult result, const Now& now);
  // Actions under way that serve a run that is over, or nobody any more: they may be cut short.
  void AddUnwanted(std::vector<uint64_t>& ids) const;
  // The ps that the action waits for.
  void SetUnanswered(uint64_t action, std::vector<std::string> ps);
  // Nothing is under way, nothing waits to be done, and there is no run.
  bool IsIdle() const;
  // That generation of the job, on that ps, is of no use any more.
  bool IsDoneWith(uint64_t ps, uint64_t generation) const;

  // Of a job that restarts: not before.
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
};

}  // namespace tessera::master

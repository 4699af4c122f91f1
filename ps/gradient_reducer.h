#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "ps/calls.h"
#include "ps/push_verdict.h"

namespace tessera::ps {

// Collects the pushes of a step from all ranks for the tables in sync mode, and hands them out in
// rank order when they are all there: so the sums have the same bits whatever the order of arrival.
// And not before every rank has confirmed that all ps have its push of the step: else a rank that
// is lost between two ps would leave one of them ahead, with rows from which nobody can compute
// again what the other one lacks. A rank may be one step ahead of the one that is being collected;
// it holds at most two pushes a rank. Pure: no locks, no clock of its own. Not thread-safe.
class GradientReducer {
 public:
  struct Push {
    double learning_rate_scale = 1;
    std::vector<GradientBlock> blocks;  // of tables in sync mode; checked
    std::vector<wire::Buffer> memory;   // where they lie
  };

  // Steps below `first_step` count as applied. `max_bytes` bounds what pushes of the step ahead may
  // add to what is held; those of the step being collected are always taken, or none would end.
  GradientReducer(uint32_t ranks, uint64_t first_step, uint64_t max_bytes, absl::Duration now);

  // What a push of `rank` for `step` is, before anything is done with it. ABORTED: a step further
  // ahead than the next. INVALID_ARGUMENT: a learning rate scale that other ranks' pushes of the
  // step do not have. RESOURCE_EXHAUSTED: too much is held.
  absl::StatusOr<PushVerdict> Check(Rank rank, uint64_t step, double learning_rate_scale,
                                    uint64_t bytes) const;
  // Of what a rank says: all ps have acknowledged its pushes of the steps below `step`, and it has
  // not begun another. ABORTED: this ps lacks one of them, or has applied later ones.
  absl::Status CheckConfirmed(Rank rank, uint64_t step) const;
  // The same of every rank, at a barrier: all of them have done the steps below `step`.
  absl::Status CheckAllConfirmed(uint64_t step) const;
  // After Check said kNew.
  void Add(Rank rank, uint64_t step, Push push, uint64_t bytes, absl::Duration now);
  // All ps have acknowledged the rank's pushes, or those of every rank, of the steps below `step`.
  void Confirm(Rank rank, uint64_t step);
  void ConfirmAll(uint64_t step);

  // The step that is being collected; all below it have been applied.
  uint64_t next_step() const { return next_step_; }
  // Whether all ranks have pushed and confirmed next_step().
  bool Complete() const {
    return collecting_.front().arrived == ranks_.size() &&
           std::all_of(ranks_.begin(), ranks_.end(),
                       [this](const RankState& rank) { return rank.confirmed > next_step_; });
  }
  // The first step that the rank has not pushed.
  uint64_t NextPush(Rank rank) const;
  // One more than the last step that it has.
  uint64_t EndPush(Rank rank) const;
  // All pushes of next_step(), by rank. Complete(), and once a step; then Applied().
  std::vector<Push> Take();
  void Applied();

  // "rank 2 (last push: step 16, 3.2s ago), ...": those that have not pushed next_step(), or have
  // not confirmed it.
  std::string Missing(absl::Duration now) const;

 private:
  struct Collecting {
    std::vector<std::optional<Push>> pushes;  // [ranks]
    std::vector<bool> pushed;                 // [ranks]; stays when the pushes are taken
    size_t arrived = 0;
    uint64_t bytes = 0;
    double learning_rate_scale = 0;  // of those that arrived
  };
  struct RankState {
    std::optional<uint64_t> last_step;
    absl::Duration since;    // of the last push, or of the start
    uint64_t confirmed = 0;  // steps below
  };
  Collecting NewStep() const;

  const uint64_t max_bytes_;
  uint64_t next_step_;
  uint64_t held_bytes_ = 0;
  std::vector<RankState> ranks_;       // [ranks]
  std::deque<Collecting> collecting_;  // next_step_, next_step_ + 1
};

}  // namespace tessera::ps

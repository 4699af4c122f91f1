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
#include "ps/calls/calls.h"
#include "ps/memory/byte_budget.h"
#include "ps/steps/push_verdict.h"

namespace tessera::ps {

// Collects the pushes of a step from all ranks for sync tables. When all are there it hands them
// out in rank order, so the sums have the same bits whatever the order of arrival.
//
// It also waits until every rank has confirmed that all ps have its push of the step. Otherwise a
// rank that is lost between two ps would leave one of them ahead, and nobody could compute from its
// rows what the other one lacks.
//
// A rank may be one step ahead of the one being collected; at most two pushes a rank are held.
// Pure: no locks, no clock of its own. Not thread-safe.
class GradientReducer {
 public:
  struct Push {
    double learning_rate_scale = 1;
    std::vector<GradientBlock> blocks;  // of sync tables; checked
    std::vector<wire::Buffer> memory;   // their keys and gradients lie here
    ByteBudget::Hold held = {};         // room for that memory
  };

  // Steps below `first_step` count as applied.
  GradientReducer(uint32_t ranks, uint64_t first_step, absl::Duration now);

  // Whether a push of `rank` for `step` is new or a repeat; changes nothing. ABORTED: the step is
  // further ahead than the next. INVALID_ARGUMENT: its learning rate scale differs from that of
  // other ranks' pushes of the step.
  absl::StatusOr<PushVerdict> Check(Rank rank, uint64_t step, double learning_rate_scale) const;
  // Checks a rank's word that all ps have acknowledged its pushes of the steps below `step`, where
  // it stands now. ABORTED: this ps lacks one of them, or has applied later ones.
  absl::Status CheckConfirmed(Rank rank, uint64_t step) const;
  // Checks the same for every rank, at a barrier: all ranks have done the steps below `step`.
  absl::Status CheckAllConfirmed(uint64_t step) const;
  // Only after Check has returned kNew.
  void Add(Rank rank, uint64_t step, Push push, absl::Duration now);
  // All ps have acknowledged the pushes of the steps below `step` by this rank, or by every rank.
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
  // One more than the last step of which the rank's push is here.
  uint64_t EndPush(Rank rank) const;
  // All pushes of next_step(), by rank. Requires Complete(), once a step; the caller applies them
  // and then calls Applied().
  std::vector<Push> Take();
  void Applied();

  // Names the ranks that have not pushed next_step(), or have not confirmed it, and counts those
  // beyond ten: "rank 2 (last push: step 16, 3.2s ago), ... and 7 more ranks".
  std::string Missing(absl::Duration now) const;

 private:
  struct Collecting {
    std::vector<std::optional<Push>> pushes;  // [ranks]
    std::vector<bool> pushed;                 // [ranks]; stays when the pushes are taken
    size_t arrived = 0;
    double learning_rate_scale = 0;  // of the pushes that arrived
  };
  struct RankState {
    std::optional<uint64_t> last_step;
    absl::Duration since;    // of the last push, or of the start
    uint64_t confirmed = 0;  // all steps below are confirmed
  };
  Collecting NewStep() const;

  uint64_t next_step_;
  std::vector<RankState> ranks_;       // [ranks]
  std::deque<Collecting> collecting_;  // next_step_, next_step_ + 1
};

}  // namespace tessera::ps

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "ps/steps/push_verdict.h"
#include "ps/steps/sequence_set.h"
#include "tessera/v1/push_log.pb.h"

namespace tessera::ps {

// For jobs without sync tables: which pushes of each rank the rows have. A push counts once,
// however often it is repeated or reordered on the way. Pure: no locks. Not thread-safe.
class AppliedPushes {
 public:
  // Pushes of every rank with numbers below `first` count as applied.
  AppliedPushes(uint32_t ranks, uint64_t first);

  // For a shard that goes back to a checkpoint without the other ps: pushes of each rank below
  // these numbers count as applied, though the rows may not have them. When a later push comes,
  // those missing below it count as applied too. INVALID_ARGUMENT: not one number a rank.
  absl::Status BeginAlone(absl::Span<const uint64_t> pushed);

  // ABORTED: all ps have acknowledged the rank's pushes below `confirmed`, but one of them is not
  // here.
  absl::Status CheckConfirmed(Rank rank, uint64_t confirmed) const;
  // Whether a push is new or a repeat. ABORTED: as CheckConfirmed; RESOURCE_EXHAUSTED: it would
  // leave too many gaps between the rank's numbers.
  absl::StatusOr<PushVerdict> Check(Rank rank, uint64_t sequence, uint64_t confirmed) const;
  // Only after Check has returned kNew.
  void Add(Rank rank, uint64_t sequence);

  bool Contains(Rank rank, uint64_t sequence) const {
    return ranks_[rank.value()].Contains(sequence);
  }
  // NextPush: the first number that is not here. EndPush: one more than the last that is.
  uint64_t NextPush(Rank rank) const { return ranks_[rank.value()].FirstMissing(); }
  uint64_t EndPush(Rank rank) const { return ranks_[rank.value()].End(); }
  // One more than the highest number of any rank: the age of a row is counted from it.
  uint64_t end() const { return end_; }
  // Pushes of all ranks, including those that only count as applied.
  uint64_t count() const;

  // Writes and reads the head of a push log's segment. FAILED_PRECONDITION: the head has another
  // number of ranks.
  void Save(v1::PushLogHead& head) const;
  absl::Status Load(const v1::PushLogHead& head);

 private:
  std::vector<SequenceSet> ranks_;
  uint64_t end_;
  bool alone_ = false;
};

}  // namespace tessera::ps

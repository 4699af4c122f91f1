#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "ps/push_verdict.h"
#include "ps/sequence_set.h"
#include "tessera/v1/push_log.pb.h"

namespace tessera::ps {

// Of jobs without sync tables: which pushes of each rank the rows have. One counts once, however
// pushes are repeated or reordered on the way. Pure: no locks. Not thread-safe.
class AppliedPushes {
 public:
  // Pushes of numbers below `first`, of every rank, count as applied.
  AppliedPushes(uint32_t ranks, uint64_t first);

  // Of a shard that returns to a checkpoint alone: pushes of each rank below these numbers count as
  // applied though the rows may not have them, and so do later those that are missing below one
  // that comes. INVALID_ARGUMENT: not one number a rank.
  absl::Status BeginAlone(absl::Span<const uint64_t> pushed);

  // ABORTED: all ps have acknowledged the rank's pushes of numbers below `confirmed`, and one of
  // them is not here.
  absl::Status CheckConfirmed(Rank rank, uint64_t confirmed) const;
  // What a push is. ABORTED: as CheckConfirmed; RESOURCE_EXHAUSTED: it would leave too many gaps
  // between the rank's numbers.
  absl::StatusOr<PushVerdict> Check(Rank rank, uint64_t sequence, uint64_t confirmed) const;
  // After Check said kNew.
  void Add(Rank rank, uint64_t sequence);

  bool Contains(Rank rank, uint64_t sequence) const {
    return ranks_[rank.value()].Contains(sequence);
  }
  // The first that is not here, and one more than the last that is.
  uint64_t NextPush(Rank rank) const { return ranks_[rank.value()].FirstMissing(); }
  uint64_t EndPush(Rank rank) const { return ranks_[rank.value()].End(); }
  // One more than the highest number of any rank: what the age of a row is counted from.
  uint64_t end() const { return end_; }
  // Of all ranks, those that only count as applied too.
  uint64_t count() const;

  // As a segment of a push log begins. FAILED_PRECONDITION: it has another number of ranks.
  void Save(v1::PushLogHead& head) const;
  absl::Status Load(const v1::PushLogHead& head);

 private:
  std::vector<SequenceSet> ranks_;
  uint64_t end_;
  bool alone_ = false;
};

}  // namespace tessera::ps

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "master/action.h"
#include "master/partition_moves.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::master {

// How far a job that trains is on its way to other ps: who is to own what, and which rows are
// there. Copies are made in rounds: all rows, then what has changed since, until little is left;
// that goes over at a barrier. Or a checkpoint of a barrier has the rows. When a round may begin,
// which barriers there are and the switch are the run's. A pure core. Not thread-safe.
class PsMove {
 public:
  enum class Stage {
    kToWeigh,       // partitions, to know which are to move
    kWeighing,      // the ps have been asked
    kToCopy,        // when no checkpoint is being written
    kCopying,       // a round of copies is under way
    kCopied,        // at the barrier: what is left goes over now
    kByCheckpoint,  // the ps cannot copy: the next barrier's checkpoint has the rows
  };
  // After a round that was so small, or not smaller than half of the one before, a barrier is asked
  // for. Rounds go on until it is reached; the last one is made there.
  static constexpr uint64_t kSmallRoundBytes = 8 << 20;
  // Of copying, where checkpoints come in between.
  static constexpr uint32_t kMaxTries = 3;

  // `owner`: [partitions], number in `from`.
  PsMove(std::vector<RunNode> from, std::vector<uint32_t> owner, std::vector<RunNode> to,
         absl::Duration now);

  Stage stage() const { return stage_; }
  absl::Duration since() const { return since_; }
  absl::Duration stage_since() const { return stage_since_; }  // of copies, the round's
  const std::vector<RunNode>& to() const { return to_; }
  // [partitions], number in to(); once there is a plan.
  const std::vector<uint32_t>& owner() const { return owner_; }
  uint32_t rounds() const { return rounds_; }  // done, of this try
  // Some of the rows, or all, may have been copied.
  bool begun() const { return begun_; }
  // The next barrier is to be for it.
  bool WantsBarrier() const { return closing_ || stage_ == Stage::kByCheckpoint; }

  void BeginWeighing() { stage_ = Stage::kWeighing; }
  // `weights` as for PlanMoves. A copy may begin.
  PartitionMoves Plan(absl::Span<const PartitionWeight> weights, absl::Duration now);
  // What every ps is to fetch that is to own more; no calls: nothing. `open` is how the new owners
  // open the job, but for the partitions.
  CopyPartitions Copies(v1::OpenJobRequest open, bool changed, uint64_t steps) const;
  void BeginRound(absl::Duration now);
  void RoundDone(uint64_t bytes);
  // No round is to come before the one at the barrier.
  void EndRounds();
  // From the first round on, by a checkpoint where that was tried too often.
  void CopyAnew(absl::Duration now);
  void GoByCheckpoint() { stage_ = Stage::kByCheckpoint; }

 private:
  const std::vector<RunNode> from_;
  const std::vector<uint32_t> from_owner_;
  const std::vector<RunNode> to_;
  const absl::Duration since_;
  std::vector<uint32_t> owner_;
  Stage stage_ = Stage::kToWeigh;
  absl::Duration stage_since_;
  uint32_t rounds_ = 0;
  uint64_t round_bytes_ = 0;  // of the last
  bool begun_ = false;
  bool closing_ = false;
  uint32_t tries_ = 0;  // ended by a checkpoint that fell due
};

}  // namespace tessera::master

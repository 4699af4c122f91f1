#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "master/actions/action.h"
#include "master/run/partition_moves.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::master {

// The move of a training job to other ps: which ps is to own what, and how far the rows are. Rows
// are copied in rounds: all of them, then those changed since, until little is left; that goes over
// at a barrier. Or a checkpoint of a barrier brings the rows. The run decides when a round may
// begin, asks for barriers, and switches to the new ps. A pure core. Not thread-safe.
class PsMove {
 public:
  enum class Stage {
    kToWeigh,       // partitions are to be weighed, to plan which of them move
    kWeighing,      // the ps have been asked
    kToCopy,        // a round is to begin, once no checkpoint is being written
    kCopying,       // a round of copies is under way
    kCopied,        // the rounds are over: the last round is made at the barrier
    kByCheckpoint,  // the ps cannot copy: the next barrier's checkpoint has the rows
  };
  // A barrier is asked for after a round of at most so many bytes, or of no less than half of the
  // one before. Rounds go on until the barrier is reached; the last one is made there.
  static constexpr uint64_t kSmallRoundBytes = 8 << 20;
  // After so many rounds in a row that brought no row, as while the barrier is held up and nobody
  // trains, each rests for so long before it begins. A single one may lie between two pushes.
  static constexpr uint32_t kEmptyRounds = 10;
  static constexpr absl::Duration kRest = absl::Seconds(1);
  // Tries at copying, cut short by checkpoints or failures, before the rows go by a checkpoint.
  static constexpr uint32_t kMaxTries = 3;

  // `owner`: [partitions], number in `from`.
  PsMove(std::vector<RunNode> from, std::vector<uint32_t> owner, std::vector<RunNode> to,
         absl::Duration now);

  Stage stage() const { return stage_; }
  absl::Duration since() const { return since_; }
  absl::Duration stage_since() const { return stage_since_; }  // while copying: the round's
  const std::vector<RunNode>& to() const { return to_; }
  // [partitions]: number in to(); empty before Plan.
  const std::vector<uint32_t>& owner() const { return owner_; }
  uint32_t rounds() const { return rounds_; }  // done, of this try
  // Some of the rows, or all, may have been copied.
  bool begun() const { return begun_; }
  // The move needs a barrier.
  bool WantsBarrier() const { return closing_ || stage_ == Stage::kByCheckpoint; }

  void BeginWeighing() { stage_ = Stage::kWeighing; }
  // Plans the owners; a copy may begin then. `weights`: as for PlanMoves.
  PartitionMoves Plan(absl::Span<const PartitionWeight> weights, absl::Duration now);
  // The rows that each ps which is to own more must fetch; no calls: none. `open`: how the new
  // owners open the job, without its partitions. `changed`: only rows changed since the last round.
  // `steps`: the steps that the rows must have; 0: any.
  CopyPartitions Copies(v1::OpenJobRequest open, bool changed, uint64_t steps) const;
  void BeginRound(absl::Duration now);
  void RoundDone(uint64_t rows, uint64_t bytes);
  // The round that was begun is to wait, unless the barrier is reached.
  bool rests() const { return rests_; }
  // Ends a rest whose time is over.
  void Tick(absl::Duration now) { rests_ = rests_ && now < stage_since_ + kRest; }
  // No round comes before the one at the barrier.
  void EndRounds();
  // Copies from the first round on, or by a checkpoint if that was tried kMaxTries times.
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
  uint64_t round_bytes_ = 0;   // of the last round
  uint32_t empty_rounds_ = 0;  // in a row, the last one among them
  bool rests_ = false;
  bool begun_ = false;
  bool closing_ = false;
  uint32_t tries_ = 0;  // calls of CopyAnew
};

}  // namespace tessera::master

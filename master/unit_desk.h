#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "tessera/v1/master_state.pb.h"
#include "tessera/v1/work.pb.h"

namespace tessera::master {

// Who holds which unit, and the rule of work.proto that a call may be repeated: asking again with
// the same completed unit gives the same unit again. A pure core, for one generation of one job.
// Not thread-safe.
class UnitDesk {
 public:
  explicit UnitDesk(uint32_t ranks) : ranks_(ranks) {}

  enum class Call {
    kRepeat,     // answer with held()
    kCompletes,  // the result is news: process it, then Complete()
    kAsks,       // holds nothing: Acknowledge()
    kDropped,    // the result is of no use: as kAsks
  };
  // INVALID_ARGUMENT: reports a unit that is not the rank's.
  absl::StatusOr<Call> Classify(Rank rank, uint64_t completed_unit) const;

  // Numbers the unit and remembers it.
  const v1::NextWorkResponse& HandOut(Rank rank, v1::NextWorkResponse unit, absl::Duration now);
  void Complete(Rank rank);
  // What the rank holds is of no use any more: whoever reports it, or never got it, asks for
  // another unit.
  void Drop(Rank rank);
  // The rank asks for work, and has done so after `completed_unit`: it is at no dropped unit.
  void Acknowledge(Rank rank, uint64_t completed_unit);
  // It may be at one.
  bool AtDropped(Rank rank) const { return ranks_[rank.value()].dropped != 0; }
  // The rank is another process's, which has reported nothing: what the rank holds is handed out to
  // it under a new number. Returns the old one; 0: the rank holds nothing.
  uint64_t TakeOver(Rank rank, absl::Duration now);
  // The rank's unit failed, and the rank tries it again: as TakeOver, but the call that says so is
  // taken.
  const v1::NextWorkResponse& HandOutAgain(Rank rank, absl::Duration now);
  // Of the unit that the rank holds; nobody has begun it under its number.
  v1::Train& MutableTrain(Rank rank) { return *Change(rank).held.mutable_train(); }

  // Whoever had the unit of training that the rank holds was lost, or failed, with the rank's
  // pushes below `next_push` done: how many in a row there.
  uint32_t CountTry(Rank rank, uint64_t next_push);
  // Tries at the rank's push are counted anew.
  void ForgetTries(Rank rank) { Change(rank).tries = 0; }
  // The rank was taken over, and who has it now has not said what is done.
  bool AwaitsWord(Rank rank) const { return ranks_[rank.value()].awaits_word; }

  // What the rank's worker says with a call (NextWorkRequest.card_trains). Of whoever takes the
  // rank over it counts once it has said what is done: until then card_trains is of who had the
  // unit. Not part of RankState.
  void HearOfCard(Rank rank, const v1::NextWorkRequest& request);
  // True, too, where nobody has said.
  bool MayTrainOnCard(Rank rank) const { return ranks_[rank.value()].may_train_on_card; }

  bool Busy(Rank rank) const { return ranks_[rank.value()].busy; }
  const v1::NextWorkResponse& held(Rank rank) const { return ranks_[rank.value()].held; }
  // When the held unit was handed out.
  absl::Duration since(Rank rank) const { return ranks_[rank.value()].since; }

  // Ranks whose state has changed since the last call, ascending. At first none has.
  std::set<uint32_t> TakeChanged() { return std::exchange(changed_, {}); }
  v1::RankState StateOf(Rank rank) const;
  // Before anything else, of every rank. Units of training go on; others are dropped.
  void Restore(Rank rank, const v1::RankState& state, absl::Duration now);

 private:
  struct Ranked {
    bool busy = false;
    v1::NextWorkResponse held;
    uint64_t completed = 0;
    uint64_t dropped = 0;
    absl::Duration since;
    uint64_t stuck_at = 0;
    uint32_t tries = 0;
    bool awaits_word = false;
    bool may_train_on_card = true;
  };
  Ranked& Change(Rank rank);

  std::vector<Ranked> ranks_;
  std::set<uint32_t> changed_;
  uint64_t next_unit_ = 1;
};

}  // namespace tessera::master

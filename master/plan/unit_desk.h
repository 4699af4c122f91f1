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

// Which rank holds which unit, and the rule of work.proto that a call may be repeated: a repeated
// call with the same completed unit gets the same unit again. A pure core, for one generation of
// one job. Not thread-safe.
class UnitDesk {
 public:
  explicit UnitDesk(uint32_t ranks) : ranks_(ranks) {}

  enum class Call {
    kRepeat,     // answer with held()
    kCompletes,  // the result is news: process it, then Complete()
    kAsks,       // the rank holds nothing: Acknowledge()
    kDropped,    // the result is of no use: as kAsks
  };
  // What a call that reports `completed_unit` is. INVALID_ARGUMENT: the unit is not the rank's.
  absl::StatusOr<Call> Classify(Rank rank, uint64_t completed_unit) const;

  // Numbers the unit and remembers it.
  const v1::NextWorkResponse& HandOut(Rank rank, v1::NextWorkResponse unit, absl::Duration now);
  void Complete(Rank rank);
  // The unit that the rank holds is of no use any more: its worker, whether it reports the unit or
  // never got it, asks for another one.
  void Drop(Rank rank);
  // The rank asks for work after `completed_unit`: it is at no dropped unit.
  void Acknowledge(Rank rank, uint64_t completed_unit);
  // The rank may be at a dropped unit.
  bool AtDropped(Rank rank) const { return ranks_[rank.value()].dropped != 0; }
  // The rank has another worker, which has reported nothing: it gets the unit that the rank holds
  // under a new number. Returns the old number; 0: the rank holds nothing.
  uint64_t TakeOver(Rank rank, absl::Duration now);
  // The rank's unit failed, and the rank tries it again: as TakeOver, but the old number counts as
  // completed.
  const v1::NextWorkResponse& HandOutAgain(Rank rank, absl::Duration now);
  // The unit of training that the rank holds. Nobody has begun the unit under its number.
  v1::Train& MutableTrain(Rank rank) { return *Change(rank).held.mutable_train(); }

  // A worker that had the unit of training that the rank holds was lost, or failed, when the rank's
  // pushes below `next_push` were done. Returns how many tries in a row ended at that push.
  uint32_t CountTry(Rank rank, uint64_t next_push);
  // How many tries in a row have ended at that push.
  uint32_t TriesAt(Rank rank, uint64_t next_push) const {
    const Ranked& r = ranks_[rank.value()];
    return r.stuck_at == next_push ? r.tries : 0;
  }
  // Tries at the rank's push are counted anew.
  void ForgetTries(Rank rank) { Change(rank).tries = 0; }
  // The rank was taken over, and its new worker has not said yet which pushes are done.
  bool AwaitsWord(Rank rank) const { return ranks_[rank.value()].awaits_word; }

  // Takes NextWorkRequest.card_trains of a call. The word of a worker that took the rank over
  // counts once it has said which pushes are done (AwaitsWord); until then that of the worker
  // before it stands. Not part of RankState.
  void HearOfCard(Rank rank, const v1::NextWorkRequest& request);
  // True also if nobody has said.
  bool MayTrainOnCard(Rank rank) const { return ranks_[rank.value()].may_train_on_card; }

  bool Busy(Rank rank) const { return ranks_[rank.value()].busy; }
  const v1::NextWorkResponse& held(Rank rank) const { return ranks_[rank.value()].held; }
  // When the held unit was handed out.
  absl::Duration since(Rank rank) const { return ranks_[rank.value()].since; }

  // Ranks whose state has changed since the last call, ascending; none at first.
  std::set<uint32_t> TakeChanged() { return std::exchange(changed_, {}); }
  v1::RankState StateOf(Rank rank) const;
  // Called for every rank before anything else. Units of training go on; others are dropped.
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

#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "master/actions/action.h"

namespace tessera::master {

// The actions that a run wants done, and what those under way are for. An action of a lane is under
// way from Take, or Begin, to Done. Not thread-safe.
class ActionQueue {
 public:
  // What an action under way is for, if its kind does not say that.
  enum class Purpose {
    kOther,  // or nothing is under way
    kTellCommitted,
    kPrune,
    kCopy,  // for a move that may have been given up
    kDrop,  // of the rows that a move brought before it was given up
    kWeigh,
  };

  // The next action of the foreground, or the last of those that wait in the background. Takes the
  // place of one that still waits.
  void Want(Lane lane, Work work) { Waiting(lane) = std::move(work); }
  // In the background: first rows are dropped, then a committed checkpoint is told of, then earlier
  // ones are removed.
  void WantDrop(CopyPartitions drop) { drop_ = std::move(drop); }
  void WantTelling(TellCommitted telling) { telling_ = std::move(telling); }
  void WantPruning(PruneCheckpoints pruning) { pruning_ = std::move(pruning); }

  // Whether the lane's action of Want waits still, and is an `A`.
  template <typename A>
  bool Wants(Lane lane) const {
    const std::optional<Work>& work = waiting_[Index(lane)];
    return work.has_value() && std::holds_alternative<A>(*work);
  }
  bool WantsAny(Lane lane) const { return waiting_[Index(lane)].has_value(); }
  void TakeBack(Lane lane) { Waiting(lane).reset(); }
  // Nothing is wanted any more.
  void Clear();

  // What is taken only later if it is false.
  struct May {
    bool prune = true;
    bool copy = true;
  };
  // The lane's next action; nullopt: none. kAside has none here: see Begin.
  std::optional<Work> Take(Lane lane, May may);
  std::optional<Work> Take(Lane lane) { return Take(lane, May()); }
  // An action of that purpose, which nobody has wanted before, is under way from here on.
  void Begin(Lane lane, Purpose purpose) { purposes_[Index(lane)] = purpose; }
  // The lane's action is done; returns its purpose.
  Purpose Done(Lane lane) { return std::exchange(purposes_[Index(lane)], Purpose::kOther); }
  Purpose purpose(Lane lane) const { return purposes_[Index(lane)]; }
  // Rows are being copied for a move, or dropped.
  bool Copies(Lane lane) const {
    return purpose(lane) == Purpose::kCopy || purpose(lane) == Purpose::kDrop;
  }
  // Checkpoints are being removed, or are still to be and may.
  bool Prunes(bool may_prune) const {
    return purpose(Lane::kBackground) == Purpose::kPrune || (may_prune && pruning_.has_value());
  }
  // As Copies, or they are still to be dropped.
  bool CopiesBehind() const { return Copies(Lane::kBackground) || drop_.has_value(); }

  // Names of the ps that have not answered the action under way.
  void SetUnanswered(Lane lane, std::vector<std::string> ps) {
    unanswered_[Index(lane)] = std::move(ps);
  }
  absl::Span<const std::string> unanswered(Lane lane) const { return unanswered_[Index(lane)]; }

 private:
  static constexpr size_t Index(Lane lane) { return static_cast<size_t>(lane); }
  std::optional<Work>& Waiting(Lane lane) { return waiting_[Index(lane)]; }

  std::array<std::optional<Work>, kLanes> waiting_;
  std::optional<CopyPartitions> drop_;
  std::optional<TellCommitted> telling_;
  std::optional<PruneCheckpoints> pruning_;
  std::array<Purpose, kLanes> purposes_{};
  std::array<std::vector<std::string>, kLanes> unanswered_;
};

}  // namespace tessera::master

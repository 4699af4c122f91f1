#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "master/actions/action.h"
#include "master/run/replicas.h"

namespace tessera::master {

// The ps of a run that are lost, and who is to take the place of each: the ps itself once it has
// joined again, or the follower that has a copy of its rows. Says whom to ask next to take up a
// part's rows; the run asks, and tells what came of it. Pure; `now` is a time of the monotonic
// clock. Not thread-safe.
class LostPs {
 public:
  // The place of the ps of one part.
  struct Place {
    absl::Duration since;   // when it became vacant, or who was to take it was lost
    RunNode back;           // is to take it; incarnation 0: none yet
    bool replaces = false;  // `back` is a follower
    uint64_t pair = 0;      // of the lost ps and the follower
    bool log_gone = false;  // `back` has said that it has no usable push log
    std::string why = {};   // it has been asked in vain, and is asked again; for people
    // Steps that count as lost with the ps (CountSteps).
    std::optional<uint64_t> steps = std::nullopt;

   private:
    friend class LostPs;
    bool asks = false;         // `back` is to be asked
    absl::Duration asks_from;  // not before this it is asked again
    // Of whoever is to take the place.
    std::optional<absl::Duration> unreached_since;
    std::optional<absl::Duration> without_room_since;
    bool was_late = false;
    RunNode returned;  // the lost ps itself, while a follower is to take its place
  };

  bool empty() const { return places_.empty(); }
  bool Contains(uint32_t part) const { return places_.contains(part); }
  const std::map<uint32_t, Place>& places() const { return places_; }  // by part
  // The process is to take a place, or is a lost ps that has joined again.
  bool Knows(uint64_t incarnation) const;
  // The first place that nobody is there to take for longer than `patience`: its part.
  std::optional<uint32_t> Overdue(absl::Duration patience, absl::Duration now) const;
  // The master itself stood still for so long and could hear nobody: the time does not count.
  void StoodStill(absl::Duration gap, absl::Duration now);

  // The part's ps is lost. `follower` is to take its place.
  void Lose(uint32_t part, const std::optional<Replicas::Replica>& follower, absl::Duration now);
  // A process that Knows names is lost. False: there is none.
  bool LoseAgain(uint64_t incarnation, absl::Duration now);
  // The part's lost ps has joined again, as `ps`.
  void Join(uint32_t part, const RunNode& ps, absl::Duration now);

  // Whoever may be asked now, is.
  void Tick(absl::Duration now);
  // Whom to ask now, by part; nullopt: nobody. Called again only after the answer.
  std::optional<uint32_t> Ask();
  // One has been asked and has not answered.
  bool asking() const { return asked_.has_value(); }
  // The answer has come. Returns the part; nullopt: whoever gave it is to take the place no more.
  std::optional<uint32_t> Answered();
  // What came of it. The part's place is there.
  // Whether the error may pass, so that it is to be asked again: it could not be reached, for
  // `ps_patience` each time that it was asked; or the ps that was lost had no room for its rows or
  // on its disk, for `disk_patience` in all; or it was too late, once.
  bool MayPass(uint32_t part, const absl::Status& failed, absl::Duration ps_patience,
               absl::Duration disk_patience, absl::Duration now);
  // It failed for now, and is asked again.
  void AskAt(uint32_t part, absl::Duration time, const absl::Status& failed);
  void AskWithoutLog(uint32_t part);
  // The follower cannot take the place: it is the ps's own again.
  void DropFollower(uint32_t part, absl::Duration now);
  // The place is taken: it is no longer here.
  Place Take(uint32_t part);

  // Whoever is to take the place returns to a checkpoint that is `steps` old. Returns how many more
  // these are than have been counted: one who was told so before may have got pushes and been lost
  // with them, so the largest count stays.
  uint64_t CountSteps(uint32_t part, uint64_t steps);

 private:
  struct Asked {
    uint32_t part = 0;
    uint64_t incarnation = 0;
  };
  // The lost ps itself is to take the place, if it has returned.
  static void ReturnToOwner(Place& place, absl::Duration now);

  std::map<uint32_t, Place> places_;
  std::optional<Asked> asked_;
};

}  // namespace tessera::master

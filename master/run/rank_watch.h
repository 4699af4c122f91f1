#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "master/run/straggler_rest.h"

namespace tessera::master {

// A run's view of its ranks beside their units: when each was last heard, which are vacant,
// which workers were given up, and which ranks rest. Whether a silent rank is late depends on its
// units (UnitDesk). Pure; `now` is a time of the monotonic clock. Not thread-safe.
class RankWatch {
 public:
  // How long the rank of a worker that was given up stays vacant: another worker is here at once,
  // or a new generation starts.
  static constexpr absl::Duration kPatienceWithGivenUp = absl::Seconds(1);

  struct Vacancy {
    absl::Duration since;
    // What the live worker that was given up failed to do; empty: the worker is gone, or another
    // one is free to take the rank.
    std::string does_not;
    // The incarnation of the worker that had the rank; 0: it was lost before this master began.
    uint64_t lost = 0;
  };

  // Every rank has a worker, heard at `now`. max_lead: see StragglerRest.
  RankWatch(uint32_t ranks, uint32_t max_lead, absl::Duration now);

  // The rank's worker has asked for work.
  void Asked(Rank rank, absl::Duration now) { asked_at_[rank.value()] = now; }
  // The rank's worker has said that it made a step, or waits for somebody.
  void Moved(Rank rank, absl::Duration now) { moved_at_[rank.value()] = now; }
  // Workers can ask for work from now on: counts silence from here.
  void MayAsk(absl::Duration now);
  // The master itself stood still for so long and could hear nobody: the time does not count.
  void StoodStill(absl::Duration gap, absl::Duration now);
  absl::Duration SinceAsked(Rank rank, absl::Duration now) const;
  // Since the later of Asked and Moved.
  absl::Duration SinceHeard(Rank rank, absl::Duration now) const;

  // The rank's worker, of this incarnation, is gone: the rank is vacant.
  void Lost(Rank rank, uint64_t incarnation, absl::Duration now);
  // The rank's worker lives but gets no rank of this run again: the rank is vacant. `does_not`: see
  // Vacancy.
  void GiveUp(Rank rank, uint64_t incarnation, absl::string_view does_not, absl::Duration now);
  bool GaveUpOn(uint64_t incarnation) const { return given_up_.contains(incarnation); }
  // Another worker has taken the vacant rank, heard at `now`. Returns how long it was vacant.
  absl::Duration Fill(Rank rank, absl::Duration now);
  bool Vacant(Rank rank) const { return vacant_.contains(rank.value()); }
  const std::map<uint32_t, Vacancy>& vacant() const { return vacant_; }  // by rank
  // The first rank that has been vacant for longer than `patience`, or, if its worker was given up,
  // than kPatienceWithGivenUp.
  std::optional<Rank> Overdue(absl::Duration patience, absl::Duration now) const;

  // The rank's step takes `times` as long as the others'. Returns whether it rests from now on.
  bool Measured(Rank rank, double times, absl::Duration now);
  // How long the rank still gets no training (StragglerRest); zero: it does not rest. At least one
  // rank that has a worker works.
  absl::Duration Rests(Rank rank, absl::Duration now) const;

 private:
  bool Works(Rank rank, absl::Duration now) const;

  std::vector<absl::Duration> asked_at_;  // by rank
  std::vector<absl::Duration> moved_at_;
  std::map<uint32_t, Vacancy> vacant_;
  std::set<uint64_t> given_up_;  // incarnations
  StragglerRest rest_;
};

}  // namespace tessera::master

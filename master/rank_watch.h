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
#include "master/straggler_rest.h"

namespace tessera::master {

// What a run knows of its ranks beside their units: when each was last heard, which have no worker,
// which workers it has given up, and who rests. Whether a rank that is not heard is late its units
// say (UnitDesk). A pure core. `now` is of the monotonic clock. Not thread-safe.
class RankWatch {
 public:
  // A rank whose worker was given up needs another that is here: else the next generation gives it
  // a new start.
  static constexpr absl::Duration kPatienceWithGivenUp = absl::Seconds(1);

  struct Vacancy {
    absl::Duration since;
    // Why it is another's though who had it lives, where nobody was free; else empty.
    std::string does_not;
    // The incarnation of who had it; 0: lost before this master began, and so before any worker
    // joined that is free.
    uint64_t lost = 0;
  };

  // All have workers, which are heard now. max_lead: see StragglerRest.
  RankWatch(uint32_t ranks, uint32_t max_lead, absl::Duration now);

  // Its worker asks for work.
  void Asked(Rank rank, absl::Duration now) { asked_at_[rank.value()] = now; }
  // Its worker says that it has made a step, or waits for somebody.
  void Moved(Rank rank, absl::Duration now) { moved_at_[rank.value()] = now; }
  // No worker could ask before.
  void MayAsk(absl::Duration now);
  // The master did: nobody could be heard meanwhile.
  void StoodStill(absl::Duration gap);
  absl::Duration SinceAsked(Rank rank, absl::Duration now) const;
  // Since it asked or moved.
  absl::Duration SinceHeard(Rank rank, absl::Duration now) const;

  // `incarnation`, its worker, is gone: the rank is vacant.
  void Lost(Rank rank, uint64_t incarnation, absl::Duration now);
  // It lives, and is to get no rank again: the rank is vacant. `does_not`: Vacancy's.
  void GiveUp(Rank rank, uint64_t incarnation, absl::string_view does_not, absl::Duration now);
  bool GaveUpOn(uint64_t incarnation) const { return given_up_.contains(incarnation); }
  // Another worker has the vacant rank, and is heard now. For how long it was vacant.
  absl::Duration Fill(Rank rank, absl::Duration now);
  bool Vacant(Rank rank) const { return vacant_.contains(rank.value()); }
  const std::map<uint32_t, Vacancy>& vacant() const { return vacant_; }  // by rank
  // The first that has been vacant for longer than `patience`, or than kPatienceWithGivenUp where
  // Vacancy::does_not says so.
  std::optional<Rank> Overdue(absl::Duration patience, absl::Duration now) const;

  // Its step takes `times` as long as that of the others. True: it rests from now on.
  bool Measured(Rank rank, double times, absl::Duration now);
  // The rank gets no training for so long (StragglerRest); zero: it does. Somebody always does.
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

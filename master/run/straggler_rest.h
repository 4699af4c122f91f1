#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"

namespace tessera::master {

// Which ranks of a bounded job rest. While a rank is at a step, each of the others begins at most
// max_lead steps (ps/steps/lead_gate.h). A rank is at two steps at a time, since it pulls the next
// one's rows ahead, so a rank that takes t times as long as the others lets them do max_lead / 2
// steps in t. With n ranks the job is faster without the slow one if (n - 1) (1 - max_lead / 2t) >
// 1 / t, that is t > max_lead / 2 + 1 / (n - 1). Such a rank gets no work for a while, so that the
// job loses only the rank's own work; then the rank is tried again, and rests longer each time. A
// pure core. `now` is a time of the monotonic clock. Not thread-safe.
class StragglerRest {
 public:
  // A rank rests once it has been too slow for so long, so that one long read does not count.
  static constexpr absl::Duration kSlowFor = absl::Seconds(5);
  static constexpr absl::Duration kFirstRest = absl::Seconds(30);
  static constexpr absl::Duration kLongestRest = absl::Minutes(5);

  // max_lead 0: the job is not bounded, and nobody rests.
  StragglerRest(uint32_t ranks, uint32_t max_lead);

  // The rank's step takes `times` as long as the others'. True: the rank rests from now on.
  bool Measured(Rank rank, double times, absl::Duration now);
  // How long the rank still rests; zero: it does not.
  absl::Duration Left(Rank rank, absl::Duration now) const;
  // The rank gets another worker: nothing is known of its pace.
  void Forget(Rank rank) { ranks_[rank.value()] = RankState(); }

  // A rank whose step takes more than so many times as long rests; infinite: none rests.
  double limit() const { return limit_; }

 private:
  struct RankState {
    std::optional<absl::Duration> slow_since;
    absl::Duration until = -absl::InfiniteDuration();
    absl::Duration next = kFirstRest;
    bool on_trial = false;  // the rank has rested and not been quick since
  };

  const double limit_;
  std::vector<RankState> ranks_;
};

}  // namespace tessera::master

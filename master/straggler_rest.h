#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"

namespace tessera::master {

// Which ranks of a bounded job rest. While a rank is at a step the others begin at most max_lead
// (ps/lead_gate.h), and it is at two at a time, since the next one's rows are pulled ahead: one
// that takes t times as long as the others lets them do max_lead / 2 steps in t. Of n ranks, the
// job is faster without it where (n - 1) (1 - max_lead / 2t) > 1 / t, which is t > max_lead / 2 +
// 1 / (n - 1). Such a rank gets no work for a while, so that it costs the job what it would have
// done and no more; then it is tried again, and rests longer each time. A pure core. `now` is of
// the monotonic clock. Not thread-safe.
class StragglerRest {
 public:
  // A rank rests that has been too slow for so long: not for one long read.
  static constexpr absl::Duration kSlowFor = absl::Seconds(5);
  static constexpr absl::Duration kFirstRest = absl::Seconds(30);
  static constexpr absl::Duration kLongestRest = absl::Minutes(5);

  // max_lead 0: the job is not bounded, and nobody rests.
  StragglerRest(uint32_t ranks, uint32_t max_lead);

  // The rank's step takes `times` as long as that of the others. True: it rests from now on.
  bool Measured(Rank rank, double times, absl::Duration now);
  // How long the rank still rests; zero: it does not.
  absl::Duration Left(Rank rank, absl::Duration now) const;
  // The rank has another worker.
  void Forget(Rank rank) { ranks_[rank.value()] = RankState(); }

  // A rank whose step takes more times as long rests; infinite: none does.
  double limit() const { return limit_; }

 private:
  struct RankState {
    std::optional<absl::Duration> slow_since;
    absl::Duration until = -absl::InfiniteDuration();
    absl::Duration next = kFirstRest;
    bool on_trial = false;  // it has rested, and not been quick since
  };

  const double limit_;
  std::vector<RankState> ranks_;
};

}  // namespace tessera::master

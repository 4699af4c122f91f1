#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"

namespace tessera::ps {

// Bounded staleness: while a rank is at a step, from its first pull for it to its push, every other
// rank begins at most `max_lead` steps. So a gradient misses of another rank at most those steps
// and the ones already under way there: two, because rows are pulled one step ahead. A rank that is
// at no step holds nobody back, and a step that has begun can always end, so all go on as long as
// each does. Not thread-safe.
class LeadGate {
 public:
  // `max_lead` is 1 or more.
  LeadGate(uint32_t ranks, uint32_t max_lead) : max_lead_(max_lead), ranks_(ranks) {}

  // Begins a step of the rank, unless it has begun already. False: it may not begin now.
  bool Begin(Rank rank, uint64_t step, absl::Duration now);
  // Ends a step: its push has come. Does nothing if it has not begun.
  void End(Rank rank, uint64_t step);
  // Ends all steps that the rank has begun: the worker that takes it over begins them again.
  void Forget(Rank rank);
  // Names the rank that this one, which may not begin, waits for: "rank 2, at its step 17 since
  // 3.2s".
  std::string Holder(Rank rank, absl::Duration now) const;

 private:
  // Most steps under way of one rank: one that is computed and some whose rows are pulled ahead.
  // When a rank begins more, its oldest counts as ended.
  static constexpr size_t kMostOpen = 64;
  struct Open {
    uint32_t rank = 0;
    uint64_t step = 0;
    absl::Duration since;
  };
  struct RankState {
    std::map<uint64_t, uint64_t> open;  // by step: its number in open_
    std::deque<uint64_t> begun;         // numbers of its latest steps, at most max_lead
  };
  using OpenSteps = std::map<uint64_t, Open>;

  // The oldest open step of other ranks, or end().
  OpenSteps::const_iterator OldestBeside(Rank rank) const;

  const uint32_t max_lead_;
  std::vector<RankState> ranks_;
  OpenSteps open_;     // by number, which grows with every step that begins
  uint64_t next_ = 0;  // number
};

}  // namespace tessera::ps

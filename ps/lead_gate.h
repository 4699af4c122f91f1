#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"

namespace tessera::ps {

// Bounded staleness: while a rank is at a step, which is from its first pull for it to its push,
// every other rank begins at most `max_lead` steps. So of another rank a gradient has not seen
// those and what that one was at already: its rows are pulled one step ahead, so two. A rank that
// is at none holds nobody back, and what has begun can always end: all go on as long as each does.
// Not thread-safe.
class LeadGate {
 public:
  // `max_lead` is 1 or more.
  LeadGate(uint32_t ranks, uint32_t max_lead) : max_lead_(max_lead), ranks_(ranks) {}

  // The rank begins a step, unless it has already. False: not now.
  bool Begin(Rank rank, uint64_t step, absl::Duration now);
  // The step's push has come; nothing for one that has not begun.
  void End(Rank rank, uint64_t step);
  // Ends all that the rank has begun: whoever takes it over begins again.
  void Forget(Rank rank);
  // Who is waited for by a rank that may not begin: "rank 2, at its step 17 since 3.2s".
  std::string Holder(Rank rank, absl::Duration now) const;

 private:
  // Steps under way of one rank: one that is computed and some whose rows are pulled ahead. Of one
  // that begins more the oldest count as ended.
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

  // The oldest of other ranks, or end().
  OpenSteps::const_iterator OldestBeside(Rank rank) const;

  const uint32_t max_lead_;
  std::vector<RankState> ranks_;
  OpenSteps open_;     // by number, which grows with every step that begins
  uint64_t next_ = 0;  // number
};

}  // namespace tessera::ps

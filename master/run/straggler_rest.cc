#include "master/run/straggler_rest.h"

#include <algorithm>
#include <limits>

namespace tessera::master {
namespace {

double LimitOf(uint32_t ranks, uint32_t max_lead) {
  if (ranks < 2 || max_lead == 0) return std::numeric_limits<double>::infinity();
  return max_lead / 2.0 + 1.0 / (ranks - 1);
}

}  // namespace

StragglerRest::StragglerRest(uint32_t ranks, uint32_t max_lead)
    : limit_(LimitOf(ranks, max_lead)), ranks_(ranks) {}

bool StragglerRest::Measured(Rank rank, double times, absl::Duration now) {
  RankState& state = ranks_[rank.value()];
  if (now < state.until) return false;  // the step is of a unit that the rank had before its rest
  if (times <= limit_) {
    state = RankState();
    return false;
  }
  if (!state.slow_since.has_value()) state.slow_since = now;
  if (!state.on_trial && now - *state.slow_since < kSlowFor) return false;
  state.until = now + state.next;
  state.next = std::min(2 * state.next, kLongestRest);
  state.slow_since.reset();
  state.on_trial = true;
  return true;
}

absl::Duration StragglerRest::Left(Rank rank, absl::Duration now) const {
  return std::max(absl::ZeroDuration(), ranks_[rank.value()].until - now);
}

}  // namespace tessera::master

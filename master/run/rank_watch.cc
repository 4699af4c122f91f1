#include "master/run/rank_watch.h"

#include <algorithm>
#include <utility>

namespace tessera::master {

RankWatch::RankWatch(uint32_t ranks, uint32_t max_lead, absl::Duration now)
    : asked_at_(ranks, now), moved_at_(ranks, now), rest_(ranks, max_lead) {}

void RankWatch::MayAsk(absl::Duration now) {
  for (absl::Duration& asked : asked_at_) asked = now;
}

void RankWatch::StoodStill(absl::Duration gap, absl::Duration now) {
  // Calls may have come before the standstill is noticed.
  for (absl::Duration& asked : asked_at_) asked = std::min(asked + gap, now);
  for (absl::Duration& moved : moved_at_) moved = std::min(moved + gap, now);
  for (auto& [rank, vacancy] : vacant_) vacancy.since = std::min(vacancy.since + gap, now);
}

absl::Duration RankWatch::SinceAsked(Rank rank, absl::Duration now) const {
  return now - asked_at_[rank.value()];
}

absl::Duration RankWatch::SinceHeard(Rank rank, absl::Duration now) const {
  return now - std::max(asked_at_[rank.value()], moved_at_[rank.value()]);
}

void RankWatch::Lost(Rank rank, uint64_t incarnation, absl::Duration now) {
  vacant_[rank.value()] = {.since = now, .does_not = "", .lost = incarnation};
  rest_.Forget(rank);
}

void RankWatch::GiveUp(Rank rank, uint64_t incarnation, absl::string_view does_not,
                       absl::Duration now) {
  Lost(rank, incarnation, now);
  vacant_.at(rank.value()).does_not = std::string(does_not);
  given_up_.insert(incarnation);
}

absl::Duration RankWatch::Fill(Rank rank, absl::Duration now) {
  const auto vacancy = vacant_.extract(rank.value());
  Asked(rank, now);
  return now - vacancy.mapped().since;
}

std::optional<Rank> RankWatch::Overdue(absl::Duration patience, absl::Duration now) const {
  for (const auto& [rank, vacancy] : vacant_) {
    const absl::Duration longest = vacancy.does_not.empty() ? patience : kPatienceWithGivenUp;
    if (now - vacancy.since > longest) return Rank(rank);
  }
  return std::nullopt;
}

bool RankWatch::Measured(Rank rank, double times, absl::Duration now) {
  return rest_.Measured(rank, times, now) && Rests(rank, now) > absl::ZeroDuration();
}

absl::Duration RankWatch::Rests(Rank rank, absl::Duration now) const {
  for (uint32_t r = 0; r < asked_at_.size(); ++r) {
    if (r != rank.value() && Works(Rank(r), now)) return rest_.Left(rank, now);
  }
  return absl::ZeroDuration();  // somebody must work
}

bool RankWatch::Works(Rank rank, absl::Duration now) const {
  return !Vacant(rank) && rest_.Left(rank, now) == absl::ZeroDuration();
}

}  // namespace tessera::master

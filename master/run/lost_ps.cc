#include "master/run/lost_ps.h"

#include <algorithm>
#include <utility>

namespace tessera::master {

bool LostPs::Knows(uint64_t incarnation) const {
  return std::any_of(places_.begin(), places_.end(), [incarnation](const auto& entry) {
    const Place& place = entry.second;
    return place.back.incarnation == incarnation || place.returned.incarnation == incarnation;
  });
}

void LostPs::StoodStill(absl::Duration gap, absl::Duration now) {
  // Calls may have come before the standstill is noticed.
  for (auto& [part, place] : places_) {
    place.since = std::min(place.since + gap, now);
    for (std::optional<absl::Duration>* since :
         {&place.unreached_since, &place.without_room_since}) {
      if (since->has_value()) *since = std::min(**since + gap, now);
    }
  }
}

std::optional<uint32_t> LostPs::Overdue(absl::Duration patience, absl::Duration now) const {
  for (const auto& [part, place] : places_) {
    if (place.back.incarnation == 0 && now - place.since > patience) return part;
  }
  return std::nullopt;
}

void LostPs::Lose(uint32_t part, const std::optional<Replicas::Replica>& follower,
                  absl::Duration now) {
  Place& place = places_[part] = Place();
  place.since = now;
  if (!follower.has_value()) return;
  place.back = follower->node;
  place.pair = follower->pair;
  place.replaces = place.asks = true;
  place.asks_from = now;
}

bool LostPs::LoseAgain(uint64_t incarnation, absl::Duration now) {
  for (auto& [part, place] : places_) {
    if (place.back.incarnation != incarnation) continue;
    ReturnToOwner(place, now);
    place.since = now;
    place.log_gone = false;
    return true;
  }
  for (auto& [part, place] : places_) {
    if (place.returned.incarnation != incarnation) continue;
    place.returned = RunNode();
    return true;
  }
  return false;
}

void LostPs::Join(uint32_t part, const RunNode& ps, absl::Duration now) {
  Place& place = places_.at(part);
  place.returned = ps;
  if (!place.replaces) ReturnToOwner(place, now);
}

void LostPs::Tick(absl::Duration now) {
  for (auto& [part, place] : places_) {
    const bool asked = asked_.has_value() && asked_->part == part;
    const bool idle = place.back.incarnation != 0 && !asked;
    if (idle && now >= place.asks_from) place.asks = true;
  }
}

std::optional<uint32_t> LostPs::Ask() {
  for (auto& [part, place] : places_) {
    if (!std::exchange(place.asks, false)) continue;
    asked_ = {.part = part, .incarnation = place.back.incarnation};
    return part;
  }
  return std::nullopt;
}

std::optional<uint32_t> LostPs::Answered() {
  const Asked asked = *std::exchange(asked_, std::nullopt);
  const auto found = places_.find(asked.part);
  if (found == places_.end() || found->second.back.incarnation != asked.incarnation) {
    return std::nullopt;
  }
  return asked.part;
}

bool LostPs::MayPass(uint32_t part, const absl::Status& failed, absl::Duration ps_patience,
                     absl::Duration disk_patience, absl::Duration now) {
  Place& place = places_.at(part);
  const auto within = [now](std::optional<absl::Duration>& since, absl::Duration patience) {
    if (!since.has_value()) since = now;
    return now - *since <= patience;
  };
  if (absl::IsUnavailable(failed)) return within(place.unreached_since, ps_patience);
  place.unreached_since.reset();
  // A follower that has no room now is of no use: who was lost may have.
  if (absl::IsResourceExhausted(failed) && !place.replaces) {
    return within(place.without_room_since, disk_patience);
  }
  // A call takes as long as its rows need (LongestCall), so that a second one would be late, too.
  if (absl::IsDeadlineExceeded(failed)) return !std::exchange(place.was_late, true);
  return absl::IsCancelled(failed);
}

void LostPs::AskAt(uint32_t part, absl::Duration time, const absl::Status& failed) {
  Place& place = places_.at(part);
  place.asks_from = time;
  place.why = std::string(failed.message());
}

void LostPs::AskWithoutLog(uint32_t part) {
  Place& place = places_.at(part);
  place.log_gone = place.asks = true;
}

void LostPs::DropFollower(uint32_t part, absl::Duration now) {
  ReturnToOwner(places_.at(part), now);
}

LostPs::Place LostPs::Take(uint32_t part) {
  Place place = std::move(places_.at(part));
  places_.erase(part);
  return place;
}

uint64_t LostPs::CountSteps(uint32_t part, uint64_t steps) {
  std::optional<uint64_t>& counted = places_.at(part).steps;
  const uint64_t before = counted.value_or(0);
  counted = std::max(before, steps);
  return *counted - before;
}

void LostPs::ReturnToOwner(Place& place, absl::Duration now) {
  place.replaces = false;
  place.back = std::exchange(place.returned, RunNode());
  place.asks = place.back.incarnation != 0;
  place.asks_from = now;
  place.why.clear();
  place.unreached_since.reset();
  place.without_room_since.reset();
  place.was_late = false;
}

}  // namespace tessera::master

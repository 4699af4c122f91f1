#include "tests/simulator/world.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace tessera::simulator {

bool World::Step(absl::Duration end) {
  if (queue_.empty() || queue_.top().at > end) {
    now_ = std::max(now_, end);
    return false;
  }
  now_ = queue_.top().at;
  const Event event = queue_.top().event;
  queue_.pop();
  event();
  return true;
}

void World::TellLine(const std::string& line) {
  digest_ = MixPair(digest_, NameHash(line));
  digest_ = MixPair(digest_, static_cast<uint64_t>(absl::ToInt64Nanoseconds(now_)));
  if (told_) {
    told_(absl::StrFormat("%9.3f %s", absl::ToDoubleSeconds(Run()), line));
  }
}

void Process::After(absl::Duration wait, Event event) {
  world_.After(wait, [this, life = life_, event = std::move(event)] { Run(life, event); });
}

void Process::Run(uint64_t life, const Event& event) {
  if (!alive_ || life != life_) return;
  if (const absl::Duration wait = stands_until_ - world_.Monotonic(); wait > absl::ZeroDuration()) {
    world_.After(wait, [this, life, event] { Run(life, event); });
    return;
  }
  event();
  if (dying_) Kill();
}

void Process::OnDeath(std::function<bool()> over, Event event) {
  if (mourners_.size() >= 2 * mourned_ + 64) {
    std::erase_if(mourners_, [](const Mourner& mourner) { return mourner.over(); });
    mourned_ = mourners_.size();
  }
  mourners_.push_back({.over = std::move(over), .event = std::move(event)});
}

void Process::Kill() {
  if (!alive_) return;
  alive_ = false;
  dying_ = false;
  world_.Tell(name_, " dies");
  if (on_kill) on_kill();
  for (const Mourner& mourner : std::exchange(mourners_, {})) {
    if (!mourner.over()) mourner.event();
  }
}

void Network::SendInOrder(Process& from, Process& to, absl::Duration& last, Event event) {
  last = std::max(std::max(last, now()), CutUntil(from, to)) + Delay();
  world_.After(last - now(), [&from, &to, from_life = from.life(), to_life = to.life(),
                              event = std::move(event)] {
    if (!from.alive() || from.life() != from_life || to.life() != to_life) return;
    to.After(absl::ZeroDuration(), event);
  });
}

absl::Duration Network::Delay() {
  if (world_.Chance(faults_.slow)) {
    return world_.Between(absl::Milliseconds(50), absl::Milliseconds(800));
  }
  return world_.Between(absl::Microseconds(50), absl::Milliseconds(2));
}

}  // namespace tessera::simulator

#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/random.h"

// A cluster in one thread: virtual time, processes that die at any moment, a network that delays,
// loses and repeats. All that happens is a function of the seed.
namespace tessera::simulator {

using Event = std::function<void()>;

class World final : public Clock {
 public:
  // Of Monotonic, when a run begins.
  static constexpr absl::Duration kBegin = absl::Seconds(1000);

  // `told`: what happens, line by line; null: nobody listens.
  World(uint64_t seed, std::function<void(const std::string&)> told)
      : random_(StreamKey(RandomFor::kGenerator, seed, NameHash("simulator"))),
        told_(std::move(told)) {}

  absl::Duration Monotonic() const override { return now_; }
  absl::Time Wall() const override { return absl::FromUnixSeconds(1700000000) + Run() + jumped_; }
  // How long the run has lasted.
  absl::Duration Run() const { return now_ - kBegin; }
  // Of the wall clock.
  void Jump(absl::Duration by) { jumped_ += by; }

  void After(absl::Duration wait, Event event) {
    queue_.push({.at = now_ + wait, .number = ++events_, .event = std::move(event)});
  }
  // The next event, if it comes before `end`; false: none does, and it is `end`.
  bool Step(absl::Duration end);

  // Draws of this run.
  uint64_t Below(uint64_t n) { return RandomBelow(random_, draws_++, n); }
  bool Chance(double p) { return RandomUniformDouble(random_, draws_++) < p; }
  absl::Duration Between(absl::Duration least, absl::Duration most) {
    return least + (most - least) * RandomUniformDouble(random_, draws_++);
  }

  // Part of the run's digest: a run that is repeated says the same.
  template <typename... Text>
  void Tell(const Text&... text) {
    TellLine(absl::StrCat(text...));
  }
  uint64_t digest() const { return digest_; }
  uint64_t events() const { return events_; }

 private:
  struct Entry {
    absl::Duration at;
    uint64_t number;
    Event event;
    bool operator<(const Entry& other) const {
      return std::pair(at, number) > std::pair(other.at, other.number);
    }
  };
  void TellLine(const std::string& line);

  const uint64_t random_;
  uint64_t draws_ = 0;
  absl::Duration now_ = kBegin;
  absl::Duration jumped_;
  uint64_t events_ = 0;
  std::priority_queue<Entry> queue_;
  const std::function<void(const std::string&)> told_;
  uint64_t digest_ = 0;
};

// What lives and dies as one. An event of a life that is over never happens; those of a process
// that stands still happen when it goes on.
class Process {
 public:
  Process(World* world, std::string name) : world_(*world), name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  bool alive() const { return alive_; }
  uint64_t life() const { return life_; }
  World& world() { return world_; }

  void After(absl::Duration wait, Event event);
  // For a later call of this life's that hears of its end; `over` says when it need not any more.
  void OnDeath(std::function<bool()> over, Event event);
  // Where it stands still already, until the later end: what waits for it stays in its order.
  void StandStill(absl::Duration how_long) {
    stands_until_ = std::max(stands_until_, world_.Monotonic() + how_long);
  }

  void Start() {
    alive_ = true;
    dying_ = false;
    ++life_;
    stands_until_ = absl::ZeroDuration();
  }
  void Kill();
  // As Kill, from within: what is under way does nothing any more that lasts, and then it ends.
  void Die() { dying_ = alive_; }
  bool dying() const { return dying_; }
  std::function<void()> on_kill;  // frees what it had

 private:
  struct Mourner {
    std::function<bool()> over;
    Event event;
  };
  void Run(uint64_t life, const Event& event);

  World& world_;
  const std::string name_;
  bool alive_ = false;
  bool dying_ = false;
  uint64_t life_ = 0;
  absl::Duration stands_until_;
  std::vector<Mourner> mourners_;
  size_t mourned_ = 0;
};

class Network {
 public:
  explicit Network(World* world) : world_(*world) {}

  // Of messages: how many are lost, come again later, or take long.
  struct Faults {
    double lost = 0;
    double repeated = 0;
    double slow = 0;
  };
  void SetFaults(const Faults& faults) { faults_ = faults; }
  // Nothing gets from one to the other; what is sent in order comes afterwards.
  void Cut(const Process& from, const Process& to, absl::Duration how_long) {
    cut_[{from.name(), to.name()}] = world_.Monotonic() + how_long;
  }

  template <typename Answer>
  using Reply = std::function<void(absl::StatusOr<Answer>)>;
  enum class Arrives { kOnceOrTwice, kOnce };
  // `serve` runs in `to`, perhaps twice, and replies at once or later; `done` runs in `from`, once:
  // UNAVAILABLE and DEADLINE_EXCEEDED do not say whether it was served.
  template <typename Answer>
  void Call(Process& from, Process& to, absl::Duration limit,
            std::function<void(Reply<Answer>)> serve, Reply<Answer> done,
            Arrives arrives = Arrives::kOnceOrTwice) {
    const auto over = std::make_shared<bool>(false);
    const auto finish = [over, done = std::move(done)](absl::StatusOr<Answer> answer) {
      if (std::exchange(*over, true)) return;
      done(std::move(answer));
    };
    const std::string peer = to.name();
    const uint64_t life = from.life();
    const auto fail = [this, &from, finish, peer, life](const char* why) {
      if (from.life() != life) return;
      from.After(Delay(), [finish, text = absl::StrCat(peer, ": ", why)] {
        finish(absl::UnavailableError(text));
      });
    };
    from.After(limit, [finish, peer] {
      finish(absl::DeadlineExceededError(absl::StrCat(peer, " does not answer")));
    });
    const auto arrive = [this, &from, &to, serve = std::move(serve), finish, fail, over,
                         life](bool first) {
      if (!to.alive()) {
        if (first) fail("connection refused");
        return;
      }
      if (first) {
        to.OnDeath([over] { return *over; }, [fail] { fail("connection reset"); });
      }
      to.After(absl::ZeroDuration(), [this, &from, &to, serve, finish, fail, first, life] {
        serve([this, &from, &to, finish, fail, first, life,
               to_life = to.life()](absl::StatusOr<Answer> answer) {
          if (!first || to.dying() || !to.alive() || to.life() != to_life) return;
          if (from.life() != life) return;
          const absl::Duration held = Held(to, from);
          if (held > kKeepAlive) {
            return from.After(kKeepAlive, [fail] { fail("connection timed out"); });
          }
          if (world_.Chance(faults_.lost)) return fail("connection reset");
          from.After(held + Delay(), [finish, answer = std::move(answer)] { finish(answer); });
        });
      });
    };
    // What is sent meanwhile arrives when the way is free again, or the connection breaks.
    if (const absl::Duration held = std::max(Held(from, to), Held(to, from)); held > kKeepAlive) {
      from.After(kKeepAlive, [fail] { fail("connection timed out"); });
    }
    const absl::Duration held = Held(from, to);
    if (held > kKeepAlive) return;
    if (world_.Chance(faults_.lost)) return fail("connection reset");
    if (arrives == Arrives::kOnceOrTwice && world_.Chance(faults_.repeated)) {
      world_.After(held + Delay() * 8, [arrive] { arrive(false); });
    }
    world_.After(held + Delay(), [arrive] { arrive(true); });
  }

  // A message of a stream: comes after those before it, unless one of both dies.
  void SendInOrder(Process& from, Process& to, absl::Duration& last, Event event);

  bool IsCut(const Process& from, const Process& to) const {
    return Held(from, to) > absl::ZeroDuration();
  }
  absl::Duration Delay();

 private:
  // A connection on which nothing comes for so long is broken.
  static constexpr absl::Duration kKeepAlive = absl::Seconds(5);

  absl::Duration now() const { return world_.Monotonic(); }
  // How long until a message can get from one to the other.
  absl::Duration Held(const Process& from, const Process& to) const {
    return std::max(CutUntil(from, to) - now(), absl::ZeroDuration());
  }
  absl::Duration CutUntil(const Process& from, const Process& to) const {
    const auto it = cut_.find({from.name(), to.name()});
    return it == cut_.end() ? absl::ZeroDuration() : it->second;
  }

  World& world_;
  Faults faults_;
  std::map<std::pair<std::string, std::string>, absl::Duration> cut_;  // until when
};

}  // namespace tessera::simulator

#pragma once

#include <deque>
#include <optional>

#include "absl/time/time.h"
#include "common/backoff.h"

namespace tessera::local {

// When a process that died is started again: after waits that grow with each death, and never again
// after kMaxDeaths within kWithin. Pure; callers pass the time. Not thread-safe.
class RestartPolicy {
 public:
  static constexpr int kMaxDeaths = 10;
  static constexpr absl::Duration kWithin = absl::Minutes(5);

  explicit RestartPolicy(const Backoff::Options& backoff) : backoff_(backoff) {}

  // How long to wait from this death to the next start; nullopt: give up.
  std::optional<absl::Duration> Died(absl::Duration now) {
    // The waits begin anew after a long life.
    if (!deaths_.empty() && now - deaths_.back() > kWithin) backoff_.Reset();
    deaths_.push_back(now);
    while (now - deaths_.front() > kWithin) deaths_.pop_front();
    if (deaths_.size() >= kMaxDeaths) return std::nullopt;
    return backoff_.Next();
  }

 private:
  Backoff backoff_;
  std::deque<absl::Duration> deaths_;
};

}  // namespace tessera::local

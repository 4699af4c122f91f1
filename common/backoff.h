#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"
#include "common/random.h"

namespace tessera {

// Says how long to wait before the next try: the wait doubles from `first` to `longest`. A random
// factor in [0.5, 1) shortens each wait, so that many callers who failed together do not come back
// together. Not thread-safe.
class Backoff {
 public:
  struct Options {
    absl::Duration first = absl::Milliseconds(100);
    absl::Duration longest = absl::Seconds(2);
    uint64_t seed = 0;  // different in each caller, e.g. its process id
  };
  explicit Backoff(const Options& options)
      : options_(options),
        key_(StreamKey(RandomFor::kBackoff, options.seed)),
        next_(options.first) {}

  absl::Duration Next() {
    const absl::Duration wait = next_ * (0.5 + 0.5 * RandomUniformDouble(key_, draws_++));
    next_ = std::min(next_ * 2, options_.longest);
    return wait;
  }
  // Call after a success.
  void Reset() { next_ = options_.first; }

 private:
  const Options options_;
  const uint64_t key_;
  absl::Duration next_;
  uint64_t draws_ = 0;
};

}  // namespace tessera

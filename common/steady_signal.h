#pragma once

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

namespace tessera {

// Waits that last as long as they say. Those of absl, as Debian has it (20220623), end at a time of
// the wall clock, also where they are told how long: set back by an hour, it makes them an hour
// longer. Thread-safe.
class SteadySignal {
 public:
  // Whoever waits looks again.
  void Send() {
    { const std::lock_guard<std::mutex> lock(mu_); }
    sent_.notify_all();
  }
  // Until `ready`, at most `limit`: whether it is. Who makes it so calls Send afterwards; `ready`
  // is asked under a lock of this, so it takes no other.
  bool Await(absl::Duration limit, absl::FunctionRef<bool()> ready) {
    constexpr absl::Duration kLongest = absl::Hours(24 * 365);
    std::unique_lock<std::mutex> lock(mu_);
    return sent_.wait_for(lock, absl::ToChronoNanoseconds(std::min(limit, kLongest)), ready);
  }

 private:
  std::mutex mu_;
  std::condition_variable sent_;
};

}  // namespace tessera

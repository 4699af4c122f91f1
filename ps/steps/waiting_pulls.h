#pragma once

#include <cstdint>
#include <list>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "ps/calls/calls.h"

namespace tessera::ps {

// A pull that waits for a step.
struct WaitingPull {
  PullCall call;
  std::vector<absl::Span<const uint64_t>> keys;  // keys of the call's blocks, checked
  absl::Duration since;
  absl::Duration deadline;
  PullDone done;
};

// The pulls of a job that wait, bounded by the bytes of their requests. Not thread-safe.
class WaitingPulls {
 public:
  explicit WaitingPulls(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  bool HasRoomFor(const PullCall& call) const { return bytes_ + call.bytes <= max_bytes_; }
  void Add(WaitingPull pull) {
    bytes_ += pull.call.bytes;
    pulls_.push_back(std::move(pull));
  }
  // Takes out the pulls for which `leaves` is true.
  std::list<WaitingPull> Take(absl::FunctionRef<bool(const WaitingPull&)> leaves) {
    std::list<WaitingPull> taken;
    for (auto it = pulls_.begin(); it != pulls_.end();) {
      const auto pull = it++;
      if (!leaves(*pull)) continue;
      bytes_ -= pull->call.bytes;
      taken.splice(taken.end(), pulls_, pull);
    }
    return taken;
  }
  const std::list<WaitingPull>& all() const { return pulls_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t max_bytes() const { return max_bytes_; }

 private:
  const uint64_t max_bytes_;
  uint64_t bytes_ = 0;
  std::list<WaitingPull> pulls_;
};

}  // namespace tessera::ps

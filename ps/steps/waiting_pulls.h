#pragma once

#include <cstdint>
#include <list>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "ps/calls/calls.h"
#include "ps/memory/byte_budget.h"

namespace tessera::ps {

// A pull that waits for a step.
struct WaitingPull {
  PullCall call;
  std::vector<absl::Span<const uint64_t>> keys;  // keys of the call's blocks, checked
  absl::Duration since;
  absl::Duration deadline;
  PullDone done;
  ByteBudget::Hold held;  // room for the call
};

// The pulls of a job that wait. Not thread-safe.
class WaitingPulls {
 public:
  void Add(WaitingPull pull) { pulls_.push_back(std::move(pull)); }
  // Takes out the pulls for which `leaves` is true.
  std::list<WaitingPull> Take(absl::FunctionRef<bool(const WaitingPull&)> leaves) {
    std::list<WaitingPull> taken;
    for (auto it = pulls_.begin(); it != pulls_.end();) {
      const auto pull = it++;
      if (!leaves(*pull)) continue;
      taken.splice(taken.end(), pulls_, pull);
    }
    return taken;
  }
  const std::list<WaitingPull>& all() const { return pulls_; }

 private:
  std::list<WaitingPull> pulls_;
};

}  // namespace tessera::ps

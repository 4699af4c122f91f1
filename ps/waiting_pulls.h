#pragma once

#include <cstdint>
#include <list>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::ps {

// A pull that waits for a step. Request and response are its caller's until `done` has run.
struct WaitingPull {
  const v1::PullRequest* request = nullptr;
  std::vector<absl::Span<const uint64_t>> keys;  // of the request's blocks, checked
  v1::PullResponse* response = nullptr;
  absl::Duration since;
  absl::Duration deadline;
  absl::AnyInvocable<void(absl::Status) &&> done;
};

// The pulls of a job that wait, bounded by the bytes of their requests. Not thread-safe.
class WaitingPulls {
 public:
  explicit WaitingPulls(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  bool HasRoomFor(const v1::PullRequest& request) const {
    return bytes_ + request.ByteSizeLong() <= max_bytes_;
  }
  void Add(WaitingPull pull) {
    bytes_ += pull.request->ByteSizeLong();
    pulls_.push_back(std::move(pull));
  }
  // Takes out those of which `leaves` is true.
  std::list<WaitingPull> Take(absl::FunctionRef<bool(const WaitingPull&)> leaves) {
    std::list<WaitingPull> taken;
    for (auto it = pulls_.begin(); it != pulls_.end();) {
      const auto pull = it++;
      if (!leaves(*pull)) continue;
      bytes_ -= pull->request->ByteSizeLong();
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

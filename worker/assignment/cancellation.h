#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera::worker {

// One-way switch that ends everything a worker does for one assignment: calls in flight are
// cancelled through their callbacks, sleeps end early. Thread-safe.
class Cancellation {
 public:
  // Runs all callbacks (once; later ones run at registration).
  void Cancel() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    if (cancelled_) return;
    cancelled_ = true;
    for (auto& [id, callback] : callbacks_) callback();
  }

  bool cancelled() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return cancelled_;
  }

  // Returns early, and false, when cancelled.
  bool SleepFor(absl::Duration duration) const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return !mu_.AwaitWithTimeout(absl::Condition(&cancelled_), duration);
  }

  // Calls `callback` on Cancel() for as long as it lives; the callback must not block or come back
  // here.
  class Registration {
   public:
    Registration(Cancellation* owner, std::function<void()> callback)
        : owner_(owner), id_(owner->Add(std::move(callback))) {}
    ~Registration() { owner_->Remove(id_); }
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

   private:
    Cancellation* const owner_;
    const uint64_t id_;
  };

 private:
  uint64_t Add(std::function<void()> callback) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    if (cancelled_) callback();
    callbacks_.emplace(++last_id_, std::move(callback));
    return last_id_;
  }
  void Remove(uint64_t id) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    callbacks_.erase(id);
  }

  mutable absl::Mutex mu_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t last_id_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, std::function<void()>> callbacks_ ABSL_GUARDED_BY(mu_);
};

// What a cancelled operation returns.
inline absl::Status CancelledStatus() {
  return absl::CancelledError("the worker's assignment has ended");
}

}  // namespace tessera::worker

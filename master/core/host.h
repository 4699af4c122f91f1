#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "master/core/core.h"
#include "master/state/state_log.h"

namespace tessera::master {

// The core behind a lock, shared by services and threads. Makes the core's writes durable in order.
// Nothing blocks under the lock: Flush writes to the log without it. Thread-safe.
class CoreHost {
 public:
  // `log` and `clock` are borrowed and outlive the host.
  CoreHost(std::unique_ptr<MasterCore> core, StateLog* log, const Clock* clock)
      : clock_(clock), log_(log), core_(std::move(core)) {}

  // Runs `use` on the core, under the lock, and wakes waiters.
  template <typename Use>
  auto Update(Use use) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    struct Announce {
      CoreHost* host;
      ~Announce() ABSL_NO_THREAD_SAFETY_ANALYSIS { host->Changed(); }
    } announce{this};
    return use(*core_, Now());
  }
  // As Update, but wakes nobody: for changes of which waiters may hear late, with the next Update.
  // The master's ticker makes one every 50 ms.
  template <typename Use>
  auto UpdateQuietly(Use use) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return use(*core_, Now());
  }
  // Runs `use` on the core, under the lock. Changes nothing and wakes nobody.
  template <typename Use>
  auto Read(Use use) const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return use(std::as_const(*core_), Now());
  }

  // Waits until the core has changed since `*seen`, which it brings up to date, `limit` is over, or
  // the host stops (false).
  bool AwaitChange(uint64_t* seen, absl::Duration limit) ABSL_LOCKS_EXCLUDED(mu_);
  // Makes durable all that the core has written so far. The caller must Flush before it acts on an
  // answer or action that depends on these writes. After a failure the next call tries all again.
  // UNAVAILABLE: another call's write to the log did not end within `limit`, so this one did not
  // try. So one thread waits for a disk that stalls, however many ask. Below the time after which
  // workers give a call up.
  absl::Status Flush(absl::Duration limit = absl::Seconds(10)) ABSL_LOCKS_EXCLUDED(mu_);
  // Why writes have not become durable, and for how long; none: the last one did. A write that
  // does not end counts after a second.
  struct Unwritten {
    absl::Status why;
    absl::Duration since;
  };
  std::optional<Unwritten> unwritten() const ABSL_LOCKS_EXCLUDED(mu_);
  // Wakes all waiters for good.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);
  bool stopped() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  master::Now Now() const { return {clock_->Monotonic(), clock_->Wall()}; }
  void Changed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Moves the core's writes to pending_.
  void Collect() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Why what is pending is not durable yet.
  absl::Status WhyUnwritten() const ABSL_SHARED_LOCKS_REQUIRED(mu_);

  const Clock* const clock_;
  StateLog* const log_;

  mutable absl::Mutex mu_;
  std::unique_ptr<MasterCore> core_ ABSL_GUARDED_BY(mu_);
  // What is to be written, by key. Only the newest value of a key matters: a batch is durable as a
  // whole or not at all. So this stays as small as the state, however long nothing can be written.
  using Pending = std::map<std::string, std::optional<std::string>>;
  Pending pending_ ABSL_GUARDED_BY(mu_);
  std::optional<Unwritten> unwritten_ ABSL_GUARDED_BY(mu_);  // `since`: a time of the clock
  // The log is being written to, by one call at a time, so that batches keep their order.
  std::optional<absl::Duration> writes_since_ ABSL_GUARDED_BY(mu_);
  uint64_t collected_ ABSL_GUARDED_BY(mu_) = 0;  // the core's writes so far
  uint64_t durable_ ABSL_GUARDED_BY(mu_) = 0;    // the first so many of them are
  uint64_t version_ ABSL_GUARDED_BY(mu_) = 1;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tessera::master

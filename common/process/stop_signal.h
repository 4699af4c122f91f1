#pragma once

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera {

// Turns SIGTERM and SIGINT into a clean stop: the first signal wakes all waiters, the second one
// ends the process at once with 128 + its number.
//
// Constructed first in main, before any other thread: it blocks both signals in this thread and in
// all threads that it starts later. Programs started from such a thread inherit the mask and must
// call UnblockStopSignals between fork and exec. At most one in a process. Thread-safe.
class StopSignal {
 public:
  // Ends the process with 128 if the system gives no thread for it.
  StopSignal();
  // Ends the watching thread; the signals stay blocked.
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // Waits at most `limit` for a stop; returns whether one has been asked for.
  bool Wait(absl::Duration limit = absl::InfiniteDuration()) ABSL_LOCKS_EXCLUDED(mu_);
  bool asked() const ABSL_LOCKS_EXCLUDED(mu_);
  // Asks for a stop as a first signal would, for a process that finds by itself that it must end.
  // The next signal then counts as the first.
  void Ask() ABSL_LOCKS_EXCLUDED(mu_);
  // Runs `callback` once: in the thread that asks for a stop, or now if a stop has been asked for
  // already. At most one callback; what it uses outlives this object.
  void OnStop(std::function<void()> callback) ABSL_LOCKS_EXCLUDED(mu_);
  // The signal that asked for the stop; 0: none, or Ask().
  int signal() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Watch();
  void AskBecause(int signal) ABSL_LOCKS_EXCLUDED(mu_);

  mutable absl::Mutex mu_;
  bool asked_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  int signal_ ABSL_GUARDED_BY(mu_) = 0;
  std::function<void()> callback_ ABSL_GUARDED_BY(mu_);
  std::thread watcher_;  // constant after construction
};

// Undoes StopSignal's blocking in the calling thread. Async-signal-safe.
void UnblockStopSignals();

}  // namespace tessera

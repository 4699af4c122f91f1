#pragma once

#include "absl/synchronization/mutex.h"

namespace tessera {

// Switches absl's deadlock detection off in release builds; debug tests keep it on. absl::Mutex, as
// Debian compiles it, checks for deadlocks at every lock taken while another is held, also for
// gRPC's locks: such a lock takes 3 times as long, and 5 times in two threads, which share the
// detector's state. main calls this once.
inline void EndMutexChecks() {
#ifdef NDEBUG
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
#endif
}

}  // namespace tessera

#pragma once

#include "absl/synchronization/mutex.h"

namespace tessera {

// absl::Mutex looks for deadlocks at every lock within a lock unless it was itself compiled for
// release, which Debian's is not: such a lock takes 3 times as long, and 5 times in two threads,
// which share what it remembers. gRPC's own locks are of this kind too. Switches that off in
// release builds, where tests have done it before. Called once, in main.
inline void EndMutexChecks() {
#ifdef NDEBUG
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
#endif
}

}  // namespace tessera

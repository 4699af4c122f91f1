#pragma once

#include "absl/time/time.h"

namespace tessera {

// Time as cores see it; tests inject one that they move by hand. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // Since some fixed moment; never goes back, whatever happens to the wall clock. For leases,
  // deadlines and rates.
  virtual absl::Duration Monotonic() const = 0;
  // For people and file names only.
  virtual absl::Time Wall() const = 0;
};

// The machine's clocks. Lives for ever.
const Clock& SystemClock();

}  // namespace tessera

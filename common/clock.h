#pragma once

#include "absl/time/time.h"

namespace tessera {

// The time source of all code; tests inject a clock that they move by hand. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // Time since some fixed moment; never goes back, whatever happens to the wall clock. For leases,
  // deadlines and rates.
  virtual absl::Duration Monotonic() const = 0;
  // The wall clock's time, for people and file names only.
  virtual absl::Time Wall() const = 0;
};

// A clock that reads the machine's clocks. Lives forever.
const Clock& SystemClock();

}  // namespace tessera

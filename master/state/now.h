#pragma once

#include "absl/time/time.h"

namespace tessera::master {

// The time of a call. Callers pass it to the cores, which read no clock.
struct Now {
  absl::Duration monotonic;
  absl::Time wall;
};

}  // namespace tessera::master

#pragma once

#include "absl/time/time.h"

namespace tessera::master {

// The time of a call, which cores are given and never ask for.
struct Now {
  absl::Duration monotonic;
  absl::Time wall;
};

}  // namespace tessera::master

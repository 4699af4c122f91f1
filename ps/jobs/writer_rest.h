#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"

namespace tessera::ps {

// How long to rest after `worked` in order to work for `share` of the time, in (0, 1]. At most a
// second.
inline absl::Duration RestFor(absl::Duration worked, double share) {
  return std::min(worked * (1 / share - 1), absl::Seconds(1));
}

// How long the writer of a checkpoint rests after `worked`, so that pushes have their part of the
// time. While pushes are under way (`busy`) it works for `share` of the time, in (0, 1]. Otherwise,
// or when the copies that pushes make for it take half of their room, it does not rest.
inline absl::Duration WriterRest(absl::Duration worked, bool busy, double share,
                                 uint64_t copied_bytes, uint64_t max_copied_bytes) {
  if (!busy || copied_bytes >= max_copied_bytes / 2) return absl::ZeroDuration();
  return RestFor(worked, share);
}

}  // namespace tessera::ps

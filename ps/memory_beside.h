#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace tessera::ps {

// What a process has resident beside what a MemoryBudget counts: code, buffers, dense tables,
// copies for a checkpoint, and what pages of rows hold besides, now or since rows have left them. A
// figure that a budget can go by: it begins with a guess, has a margin, and follows what was
// measured up in steps, so that rows are let go no faster than they can leave, and down in minutes,
// so that what comes again finds room. Not thread-safe.
class MemoryBeside {
 public:
  explicit MemoryBeside(uint64_t budget) : budget_(budget) {}

  // `counted`: rows and tier at the moment of `resident`. The pages of rows are not given back, so
  // at their most they count from then on.
  void Measure(uint64_t resident, uint64_t counted, absl::Duration now);
  // Tables have gone, and their pages with them.
  void Forget() { most_counted_ = 0; }
  uint64_t bytes() const { return bytes_; }

 private:
  const uint64_t budget_;
  uint64_t most_counted_ = 0;
  uint64_t bytes_ = 0;
  bool measured_ = false;
  absl::Duration at_;
};

}  // namespace tessera::ps

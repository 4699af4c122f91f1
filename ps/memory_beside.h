#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace tessera::ps {

// Estimates what a process has resident beside what a MemoryBudget counts: code, buffers, dense
// tables, copies for a checkpoint, and the rest of the pages of rows, unused or left by rows. The
// figure begins with a guess and has a margin. It follows a measured rise in steps, so that rows
// are let go no faster than they can leave, and a fall over minutes, so that what comes again finds
// room. Not thread-safe.
class MemoryBeside {
 public:
  explicit MemoryBeside(uint64_t budget) : budget_(budget) {}

  // `counted`: bytes of rows and tier at the moment of `resident`. The pages of rows are not given
  // back, so the highest count is what they take from then on.
  void Measure(uint64_t resident, uint64_t counted, absl::Duration now);
  // Tables and their pages are gone: forgets the highest count.
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

#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace tessera::ps {

// Estimates what a process has resident beside what is counted of it, the pages of rows and their
// tier: code, buffers, dense tables, copies for a checkpoint. The figure begins with a guess and
// has a margin. It follows a measured rise in steps, so that rows are let go no faster than they
// can leave, and a fall over minutes, so that what comes again finds room. Where rows stay nothing
// makes room for what comes again: a rise counts at once, and a fall takes hours. Not thread-safe.
class MemoryBeside {
 public:
  enum class Rows { kMayLeave, kStay };
  explicit MemoryBeside(uint64_t budget, Rows rows = Rows::kMayLeave)
      : budget_(budget), rows_(rows) {}

  // `counted`: of the bytes that were resident at that moment, those that are counted elsewhere.
  void Measure(uint64_t resident, uint64_t counted, absl::Duration now);
  uint64_t bytes() const { return bytes_; }
  // What was last measured, without a margin.
  uint64_t measured() const { return measured_; }
  // Whether bytes() is still above all that was measured, because it began with a guess.
  bool guessed() const { return guessed_; }

 private:
  const uint64_t budget_;
  const Rows rows_;
  uint64_t bytes_ = 0;
  uint64_t measured_ = 0;
  bool begun_ = false;
  bool guessed_ = false;
  absl::Duration at_;
};

}  // namespace tessera::ps

#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "ps/rows/partition_set.h"
#include "ps/tables/table.h"

namespace tessera::ps {

// Erases expired rows on the disk of a shard that nobody cuts because it follows another. Works in
// pieces between the records that it takes up, a tenth of the time. Not thread-safe.
class ExpiredEraser {
 public:
  // All borrowed; they outlive it. The tables may be added later.
  ExpiredEraser(const Clock* clock, const Tables* tables, const PartitionSet* partitions)
      : clock_(clock), tables_(tables), partitions_(partitions) {}

  // Rows have expired: asks for a pass over all partitions, after the one under way.
  void Want() { wanted_ = true; }
  // Erases the next piece, if it is time. Errors are the disk's.
  absl::Status Erase();

 private:
  const Clock* const clock_;
  const Tables* const tables_;
  const PartitionSet* const partitions_;
  bool wanted_ = false;     // rows have expired since the pass began
  size_t next_ = SIZE_MAX;  // index over the partitions of all tables; past the last: done
  absl::Duration from_;     // when to go on, by Clock::Monotonic
};

}  // namespace tessera::ps

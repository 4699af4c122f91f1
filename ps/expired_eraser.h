#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "ps/partition_set.h"
#include "ps/request_check.h"

namespace tessera::ps {

// Erases what has expired on the disk of a shard that nobody cuts, since it follows another: in
// pieces between the records that it takes up, a tenth of the time. Not thread-safe.
class ExpiredEraser {
 public:
  // Borrowed, outliving it; the tables may come later.
  ExpiredEraser(const Clock* clock, const Tables* tables, const PartitionSet* partitions)
      : clock_(clock), tables_(tables), partitions_(partitions) {}

  // Rows have expired: a pass over all partitions is due, the one under way aside.
  void Want() { wanted_ = true; }
  // The next piece, if it is time. Errors are the disk's.
  absl::Status Erase();

 private:
  const Clock* const clock_;
  const Tables* const tables_;
  const PartitionSet* const partitions_;
  bool wanted_ = false;     // rows have expired since the pass began
  size_t next_ = SIZE_MAX;  // the n-th partition of all tables; past the last: done
  absl::Duration from_;     // of Clock::Monotonic: not before
};

}  // namespace tessera::ps

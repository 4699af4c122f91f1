#pragma once

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"

namespace tessera::ps {

// Decides who may be handed the rows of which partitions: whoever asked last, by a ticket, so that
// a caller that has been replaced takes no marks of changes. The marks tell what has changed since
// the move has copied rows, until a checkpoint is cut, which takes them. Thread-safe.
class PartitionTakes {
 public:
  explicit PartitionTakes(uint32_t partition_count) : tickets_(partition_count) {}
  PartitionTakes(const PartitionTakes&) = delete;
  PartitionTakes& operator=(const PartitionTakes&) = delete;

  // A ticket for all rows of these partitions, or with `changed` for those changed since they were
  // handed out. It ends their earlier ticket. `may_begin` is asked last, before anything changes;
  // its error is the answer. ABORTED: a later move has begun; FAILED_PRECONDITION: the marks are of
  // no use.
  absl::StatusOr<uint64_t> Begin(absl::Span<const uint32_t> partitions, bool changed, uint64_t move,
                                 absl::FunctionRef<absl::Status()> may_begin)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Runs `take` while no ticket begins or ends. ABORTED: this ticket has ended.
  absl::Status Take(uint64_t ticket, uint32_t partition, absl::FunctionRef<absl::Status()> take)
      ABSL_LOCKS_EXCLUDED(mu_);
  // A checkpoint is cut: all tickets end, and the marks count changes since the cut.
  void End() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Mutex mu_;
  uint64_t last_ticket_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<uint64_t> tickets_ ABSL_GUARDED_BY(mu_);  // [partition_count]; 0: ended
  uint64_t move_ ABSL_GUARDED_BY(mu_) = 0;              // the latest
  bool marks_lead_to_it_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tessera::ps

#include "ps/jobs/partition_takes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace tessera::ps {

absl::StatusOr<uint64_t> PartitionTakes::Begin(absl::Span<const uint32_t> partitions, bool changed,
                                               uint64_t move,
                                               absl::FunctionRef<absl::Status()> may_begin) {
  absl::MutexLock lock(&mu_);
  // A late call must not take the marks that the current move needs.
  if (move < move_) {
    return absl::AbortedError(absl::StrCat("move ", move, " is over, move ", move_, " has begun"));
  }
  if (changed && move != move_) {
    return absl::FailedPreconditionError("its rows were not copied for this move");
  }
  if (changed && !marks_lead_to_it_) {
    return absl::FailedPreconditionError(
        "a checkpoint was cut since rows were copied, and took the marks of changes");
  }
  TESSERA_RETURN_IF_ERROR(may_begin());
  move_ = move;
  marks_lead_to_it_ = true;
  ++last_ticket_;
  for (const uint32_t partition : partitions) tickets_[partition] = last_ticket_;
  return last_ticket_;
}

absl::Status PartitionTakes::Take(uint64_t ticket, uint32_t partition,
                                  absl::FunctionRef<absl::Status()> take) {
  absl::MutexLock lock(&mu_);
  if (partition >= tickets_.size() || tickets_[partition] != ticket) {
    return absl::AbortedError(
        absl::StrCat("the rows of partition ", partition, " go to another caller now"));
  }
  return take();
}

void PartitionTakes::End() {
  absl::MutexLock lock(&mu_);
  std::fill(tickets_.begin(), tickets_.end(), 0);
  marks_lead_to_it_ = false;
}

}  // namespace tessera::ps

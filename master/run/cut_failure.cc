#include "master/run/cut_failure.h"

namespace tessera::master {

CutFailure Classify(const ActionResult& result, bool ps_lost, bool none_lost) {
  // A failure of the master's own disk says nothing about a ps.
  if (result.own_disk) return CutFailure::kDisk;
  // Since a lost ps is known before, a ps that aborts while none is lost has failed itself.
  if (absl::IsAborted(result.status) && !ps_lost && none_lost) return CutFailure::kShardFailed;
  if (absl::IsAborted(result.status) || absl::IsNotFound(result.status) || ps_lost) {
    return CutFailure::kDropped;
  }
  if (absl::IsUnavailable(result.status) || absl::IsDeadlineExceeded(result.status)) {
    return CutFailure::kNotReached;
  }
  return CutFailure::kDisk;
}

}  // namespace tessera::master

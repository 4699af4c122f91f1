// Copies of ps's rows, and who has or may have rows besides the run's own ps.
#include <map>

#include "master/run/job_run.h"

namespace tessera::master {

bool JobRun::Replicates() const {
  // A copy is made from a checkpoint and one log, which unsaved rows do not have.
  return spec().recovery().replicas() > 0 && Logged() && !Unsaved() && plan_ != nullptr &&
         !end_.has_value();
}

std::vector<uint32_t> JobRun::PartsToFollow(absl::Duration now) const {
  if (!Replicates() || move_.has_value()) return {};
  return replicas_.Vacant(now);
}

void JobRun::LetFollow(uint32_t part, const RunNode& node, const Now& now) {
  replicas_.LetFollow(part, node, now);
}

std::vector<RunNode> JobRun::CopiedTo() const {
  // The next run's ps are left out. Opening the job there ends the copy, and closing it would drop
  // the rows that the move brought.
  const bool goes_on = end_.has_value() && end_->next.has_value();
  std::map<uint64_t, RunNode> copied_to = moved_to_;
  copied_to.insert(replicas_.copied_to().begin(), replicas_.copied_to().end());
  std::vector<RunNode> nodes;
  for (const auto& [incarnation, node] : copied_to) {
    const bool is_next = goes_on && Among(end_->next->ps, incarnation);
    if (!Uses(incarnation) && !is_next) nodes.push_back(node);
  }
  return nodes;
}

void JobRun::HearPs(uint64_t incarnation, const v1::JobOnPs& job, const Now& now) {
  replicas_.Hear(incarnation, job, now);
  if (job.replica() != 0 && job.follows() == 0 && Replicates()) {
    replicas_.EndUnknown(incarnation, now);
  }
}

}  // namespace tessera::master

#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "ps/jobs/job_shard.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::ps {

// A shard with the rows of `near`, the job's of the generation before, and of `staged`, what other
// ps have sent for this one; each null where there is none, and closed as its rows are taken over.
// FAILED_PRECONDITION: a partition is in neither. Of a shard that was closed before, why it was.
absl::StatusOr<std::shared_ptr<JobShard>> JoinShards(const v1::OpenJobRequest& request,
                                                     const JobShard::Options& options,
                                                     JobShard* near, JobShard* staged,
                                                     KeepGoing keep_going);
// The shard that a log here leads to, by the logs of earlier generations too where no checkpoint
// has rows that were moved. The load ends with an error of `keep_going`.
absl::StatusOr<std::shared_ptr<JobShard>> RecoverShard(const v1::OpenJobRequest& request,
                                                       const JobShard::Options& options,
                                                       KeepGoing keep_going);

}  // namespace tessera::ps

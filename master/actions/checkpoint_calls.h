#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "master/actions/action.h"
#include "tessera/v1/checkpoint.pb.h"
#include "tessera/v1/master_state.pb.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::master {

// What is asked of ps and of the checkpoint root for one checkpoint of a job, in four parts: the
// cut at a barrier, the write while the job trains, the news that it is committed, and the removal
// of earlier ones. Pure.

// A checkpoint of the job of `record`, in its generation.
struct NewCheckpoint {
  const v1::JobRecord* record = nullptr;  // borrowed until the calls are made
  std::vector<RunNode> ps;                // by part
  std::string folder;
  std::string base;  // the last that was committed; empty: all rows are written anew
  uint32_t partition_count = 0;
  v1::Position position;
  std::vector<uint64_t> pushes;  // TrainingPlan::pushes
  std::vector<v1::Evaluation> evaluations;
  bool early = false;  // WriteCheckpointRequest::early
  absl::Time at;
};
CutCheckpoint CutOf(const NewCheckpoint& checkpoint);
WriteCheckpoint WriteOf(const NewCheckpoint& checkpoint);
// `parts`: what the ps have answered to WriteOf. Whether some have written all their rows and
// others what changed. Ps without rows are of no matter.
bool OutOfStep(absl::Span<const v1::WriteCheckpointResponse> parts);
TellCommitted TellOf(const v1::JobRecord& record, absl::Span<const RunNode> ps,
                     const std::string& folder);
// `best` (empty: none) is kept besides those that the spec keeps.
PruneCheckpoints PruneOf(const v1::JobRecord& record, const std::string& folder,
                         const std::string& best);

}  // namespace tessera::master

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "common/keep_going.h"

namespace tessera {

// The decision about one "step-..." folder of a job's folder.
struct PruneStep {
  std::string name;
  bool remove = false;
  std::string reason;  // "the best by its evaluation", "older than the newest 3"
};

struct PruneOptions {
  // How many of the newest committed checkpoints to keep; at least 1.
  uint64_t keep = 1;
  // Nobody writes to the folder now, so folders without a manifest that are newer than the newest
  // sound checkpoint are removed too. Otherwise one of them may be a checkpoint that is being
  // written.
  bool job_stopped = false;
};

// Decides, newest folder first. Keeps the newest `keep` checkpoints, the newest one that verifies,
// and the one that the newest readable manifest names as the best; all others go, and so do
// leftovers without a manifest. Removes nothing. FAILED_PRECONDITION: no checkpoint verifies, so
// none may be removed; NOT_FOUND: no such folder. Reads whole checkpoints, newest first, until one
// verifies.
absl::StatusOr<std::vector<PruneStep>> PlanPrune(FileSystem& fs, const std::string& job_folder,
                                                 const PruneOptions& options,
                                                 KeepGoing keep_going = absl::OkStatus);

// Removes the folders that the plan marks, oldest first (RemoveCheckpoint).
absl::Status Prune(FileSystem& fs, const std::string& job_folder,
                   const std::vector<PruneStep>& plan, KeepGoing keep_going = absl::OkStatus);

}  // namespace tessera

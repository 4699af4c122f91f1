#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "master/state_log.h"

namespace tessera::master {

// The folder of all jobs' checkpoints, and the cluster that may write there. Jobs' folders have the
// numbers that a cluster counts, so two over one root would write into the same ones. Its file
// CLUSTER names whose it is: of the cluster whose state was the last to be new. One that goes on
// with the state it had keeps what it has claimed, or finds that it has been taken.
struct CheckpointRoot {
  std::string folder;
  std::string cluster;   // empty: whoever else writes there is not looked for
  bool claimed = false;  // what `cluster` is, is in the cluster's state
};

// Makes the folder, and looks whose it is for the cluster whose state `log` holds.
// FAILED_PRECONDITION: another one has claimed it since this one had.
absl::StatusOr<CheckpointRoot> FindRoot(FileSystem& files, const std::string& folder,
                                        StateLog& log);
// Claims it, once for all of a cluster's life; by a master that serves.
absl::Status Claim(FileSystem& files, const CheckpointRoot& root, StateLog& log);

// UNAVAILABLE: another cluster has claimed it since, and may give it back.
absl::Status CheckClaim(FileSystem& files, const CheckpointRoot& root);

}  // namespace tessera::master

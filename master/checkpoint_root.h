#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "master/state_log.h"

namespace tessera::master {

// The folder of all jobs' checkpoints, and the cluster that may write there. Jobs' folders are
// named by a cluster's job numbers, so two clusters over one root would write into the same
// folders. The root's file CLUSTER names its owner: the cluster that last claimed it, which a
// cluster does once, when its state is new. An older cluster later finds its claim kept or taken.
struct CheckpointRoot {
  std::string folder;
  std::string cluster;   // empty: CLUSTER is not checked
  bool claimed = false;  // `cluster` comes from the cluster's state: it has claimed a root
};

// Makes the folder and reads its owner, for the cluster whose state `log` holds.
// FAILED_PRECONDITION: another cluster has claimed the root since this one did.
absl::StatusOr<CheckpointRoot> FindRoot(FileSystem& files, const std::string& folder,
                                        StateLog& log);
// Claims the root, once in a cluster's life. Called by a master that serves.
absl::Status Claim(FileSystem& files, const CheckpointRoot& root, StateLog& log);

// UNAVAILABLE: another cluster has claimed the root since, and may give it back.
absl::Status CheckClaim(FileSystem& files, const CheckpointRoot& root);

}  // namespace tessera::master

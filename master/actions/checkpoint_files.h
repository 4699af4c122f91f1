#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checkpoint/manifest.h"
#include "common/file_system.h"
#include "common/keep_going.h"
#include "master/actions/action.h"
#include "master/actions/checkpoint_root.h"

namespace tessera::master {

// The master's own work in the checkpoint root, before and after that of the ps. Folders are below
// the root. Thread-safe.
class CheckpointFiles {
 public:
  // Borrowed, outliving this.
  CheckpointFiles(FileSystem* files, CheckpointRoot* root) : files_(*files), root_(*root) {}

  // Does FindCheckpoint. A job's own checkpoint is made durable against a power cut. UNAVAILABLE:
  // among others, that there is none where the root is not the one that the cluster has claimed.
  ActionResult Find(const FindCheckpoint& find, KeepGoing keep_going) const;
  // Makes the folder of a checkpoint, empty, in place of one that an earlier try has left.
  // UNAVAILABLE: the root is another cluster's, or not the one that this one has claimed.
  absl::Status Begin(const std::string& folder) const;
  // Commits the parts that the ps have written. FAILED_PRECONDITION: the master does not see a file
  // of them; UNAVAILABLE: nor the root that the cluster has claimed.
  absl::Status Commit(const WriteCheckpoint& write,
                      absl::Span<const v1::WriteCheckpointResponse> parts) const;
  // Does PruneCheckpoints; `starts` stay, too.
  void Prune(const PruneCheckpoints& prune, const std::vector<std::string>& starts) const;
  // Removes the folder of a checkpoint that failed.
  void Drop(const std::string& folder) const;

 private:
  ActionResult FindSound(const FindCheckpoint& find, KeepGoing keep_going) const;
  // Syncs the folder and its parents up to the root.
  absl::Status MakeDurable(const std::string& folder) const;
  absl::Status TryPrune(const PruneCheckpoints& prune, const std::vector<std::string>& keep) const;

  // The newest of `committed` (newest first, of one job) that is older than `folder` and has no row
  // file in common with it; empty: none. Reads manifests alone.
  absl::StatusOr<std::string> FindApart(const std::string& folder,
                                        const std::vector<CheckpointName>& committed) const;

  FileSystem& files_;
  CheckpointRoot& root_;
};

}  // namespace tessera::master

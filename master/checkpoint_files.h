#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/file_system.h"
#include "common/keep_going.h"
#include "master/action.h"
#include "master/checkpoint_root.h"

namespace tessera::master {

// What the master itself does in the checkpoint root, before and after what the ps do there.
// Folders are below the root. Thread-safe.
class CheckpointFiles {
 public:
  // Borrowed, outliving this.
  CheckpointFiles(FileSystem* files, CheckpointRoot root)
      : files_(*files), root_(std::move(root)) {}

  // Of a job's own folder: the newest that is sound, which no power cut takes away any more.
  ActionResult Find(const FindCheckpoint& find, KeepGoing keep_going) const;
  // Makes the folder of a checkpoint, empty, in place of what an earlier try has left.
  // UNAVAILABLE: the root is another cluster's.
  absl::Status Begin(const std::string& folder) const;
  // Commits what every ps has written. FAILED_PRECONDITION: the master does not see a file of it.
  absl::Status Commit(const WriteCheckpoint& write,
                      absl::Span<const v1::WriteCheckpointResponse> parts) const;
  // After Commit: removes what is not to be kept, by `write` or because a job is to start from it.
  void Prune(const WriteCheckpoint& write, const std::vector<std::string>& starts) const;
  // Of a checkpoint that failed.
  void Drop(const std::string& folder) const;

 private:
  // Names, up to the root.
  absl::Status MakeDurable(const std::string& folder) const;
  absl::Status TryPrune(const WriteCheckpoint& write, const std::vector<std::string>& keep) const;

  FileSystem& files_;
  const CheckpointRoot root_;
};

}  // namespace tessera::master

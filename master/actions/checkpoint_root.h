#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/file_system.h"
#include "master/state/state_log.h"

namespace tessera::master {

// The folder of all jobs' checkpoints, and the cluster that may write there. Jobs' folders are
// named by a cluster's job numbers, so two clusters over one root would write into the same
// folders. The root's file CLUSTER names its owner: the cluster that last claimed it, which a
// cluster does once. It takes another's root over only if it was that one's before this cluster
// had numbered a job, since it leaves out the numbers of the folders that it finds. An older
// cluster later finds its claim kept or taken; or no file, where the root's file system is not
// mounted. Thread-safe.
class CheckpointRoot {
 public:
  // A root that is nobody's: it is not claimed, and nothing is checked. `files` is borrowed.
  CheckpointRoot(FileSystem* files, std::string folder)
      : files_(*files), folder_(std::move(folder)) {}
  // Makes the folder and reads its owner, for the cluster whose state `log` holds; both are
  // borrowed. FAILED_PRECONDITION: another cluster has claimed the root since this one did.
  // UNAVAILABLE: this one's claim is not there.
  static absl::StatusOr<std::unique_ptr<CheckpointRoot>> Open(FileSystem* files, std::string folder,
                                                              StateLog* log);

  const std::string& folder() const { return folder_; }
  const std::string& cluster() const { return cluster_; }  // empty: a root that is nobody's

  // Claims the root, once in a cluster's life. Called by a master that serves; after an error
  // MayWrite tries again. UNAVAILABLE: it is another's, and was not when jobs were numbered.
  absl::Status Claim() ABSL_LOCKS_EXCLUDED(mu_);
  // Whether this cluster may write here. UNAVAILABLE: another has claimed the root since, and may
  // give it back; or this one's claim is not there. Else why it cannot claim the root.
  absl::Status MayWrite() ABSL_LOCKS_EXCLUDED(mu_);
  // UNAVAILABLE as MayWrite, if the cluster has claimed the root: this may be another folder than
  // the one that it has written to.
  absl::Status CheckClaim() const ABSL_LOCKS_EXCLUDED(mu_);
  // The root is another's, and this cluster has never claimed it: nothing there is this one's.
  bool IsAnothers() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  CheckpointRoot(FileSystem* files, std::string folder, std::string cluster, bool claimed,
                 std::string from, StateLog* log)
      : files_(*files),
        folder_(std::move(folder)),
        cluster_(std::move(cluster)),
        from_(std::move(from)),
        log_(log),
        claimed_(claimed) {}

  // UNAVAILABLE: the root's CLUSTER names another; `owner` empty: there is none.
  absl::Status CheckOwner(const std::string& owner) const;

  FileSystem& files_;
  const std::string folder_;
  const std::string cluster_;
  // The cluster whose folders the numbers of jobs leave out; empty: none.
  const std::string from_;
  StateLog* const log_ = nullptr;  // null: a root that is nobody's

  mutable absl::Mutex mu_;
  bool claimed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tessera::master

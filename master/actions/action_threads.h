#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/file_system.h"
#include "common/rpc/channels.h"
#include "master/actions/action_runner.h"

namespace tessera::master {

// The actions under way, at most kLanes of a job, each with its own thread and ActionRunner.
// Thread-safe.
class ActionThreads {
 public:
  // Called on the action's thread, with no lock held.
  using Done = std::function<void(uint64_t id, ActionResult result)>;

  // What is borrowed outlives this object.
  ActionThreads(Channels* channels, FileSystem* files, CheckpointRoot* checkpoint_root,
                ActionRunner::Starts starts, Done done)
      : channels_(channels),
        files_(files),
        checkpoint_root_(checkpoint_root),
        starts_(std::move(starts)),
        done_(std::move(done)) {}
  ~ActionThreads() { Stop(); }

  // RESOURCE_EXHAUSTED: there is no thread for it now, and it has not begun.
  absl::Status Begin(std::shared_ptr<const Action> action) ABSL_LOCKS_EXCLUDED(mu_);
  // Cancels those of the actions that are under way.
  void Cancel(const std::vector<uint64_t>& ids) ABSL_LOCKS_EXCLUDED(mu_);
  // The ps that have been called and have not answered, by action.
  std::map<uint64_t, std::vector<std::string>> Unanswered() const ABSL_LOCKS_EXCLUDED(mu_);
  // Cancels all actions and waits for them; none begins any more.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Doing {
    std::unique_ptr<ActionRunner> runner;
    std::thread thread;
    bool done = false;  // the thread is about to end
  };

  Channels* const channels_;
  FileSystem* const files_;
  CheckpointRoot* const checkpoint_root_;
  const ActionRunner::Starts starts_;
  const Done done_;

  mutable absl::Mutex mu_;
  std::map<uint64_t, Doing> doing_ ABSL_GUARDED_BY(mu_);  // by the action's number
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tessera::master

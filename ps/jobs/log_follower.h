#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/channels.h"
#include "grpcpp/client_context.h"
#include "ps/jobs/jobs.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::ps {

// Keeps this ps's copy of a job that it follows up to date (Jobs::BeginFollowing): opens the shard,
// then asks the ps that workers call for its push log, as long as `jobs` says that this is wanted.
// Owns one thread. Thread-safe.
class LogFollower {
 public:
  // `jobs` and `channels` outlive it.
  LogFollower(Jobs* jobs, Channels* channels, v1::OpenJobRequest request);
  ~LogFollower();  // stops following, at once
  bool ended() const { return ended_; }

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Follow() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Wanted() const ABSL_LOCKS_EXCLUDED(mu_);
  // False: the thread must end.
  bool Pause(absl::Duration wait) ABSL_LOCKS_EXCLUDED(mu_);

  Jobs* const jobs_;
  Channels* const channels_;
  const v1::OpenJobRequest request_;
  std::atomic<bool> ended_ = false;
  mutable absl::Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mu_) = nullptr;  // the call under way
  std::thread thread_;
};

// The followers of all jobs that this ps follows. Ends them when it is destroyed. Thread-safe.
class Followers {
 public:
  // `jobs` and `channels` outlive it.
  Followers(Jobs* jobs, Channels* channels) : jobs_(jobs), channels_(channels) {}
  // Begins to follow, once for repeats of a request; errors as Jobs::BeginFollowing's.
  // RESOURCE_EXHAUSTED: no memory or no thread.
  absl::Status Follow(const v1::OpenJobRequest& request) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  Jobs* const jobs_;
  Channels* const channels_;
  absl::Mutex mu_;
  std::list<LogFollower> followers_ ABSL_GUARDED_BY(mu_);
};

// Whether an error of ReadLog or Follow may pass, so that trying again makes sense.
bool MayFollowAgain(const absl::Status& status);

}  // namespace tessera::ps

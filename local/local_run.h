#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "client/job_client.h"
#include "local/cluster.h"
#include "tessera/v1/job_service.pb.h"

namespace tessera::local {

// One job on a cluster of its own, from submission to its end. Thread-safe; used once.
class LocalRun {
 public:
  struct Options {
    ClusterOptions cluster;
    bool in_process = false;
    v1::SubmitRequest request;
    // Goes on with the unfinished job that the work folder's master knows, as it was submitted,
    // instead of submitting; `cluster.say` is told what `request` says otherwise.
    bool resume = false;
    // Called in the thread of Run once the work folder is known to hold no unfinished job; an error
    // ends the run. Null: nothing.
    std::function<absl::Status()> before_submit = nullptr;
    // Called in the thread of Run.
    std::function<void(const v1::JobStatus&)> on_status;
  };
  explicit LocalRun(Options options);

  // Starts the cluster, runs the job, stops the cluster. Returns the job's last status (with
  // `checkpoint` an absolute path), also if the job failed or was cancelled.
  //   FAILED_PRECONDITION  a process cannot be kept alive; without `resume`: the work folder holds
  //                        an unfinished job
  //   NOT_FOUND            with `resume`: the work folder holds no unfinished job
  absl::StatusOr<v1::JobStatus> Run() ABSL_LOCKS_EXCLUDED(mu_);
  // Cancels the job and makes Run return soon after. Returns at once.
  void Cancel() ABSL_LOCKS_EXCLUDED(mu_);
  bool cancelled() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::StatusOr<v1::JobStatus> RunOn(Cluster& cluster);
  absl::StatusOr<std::string> SubmitOrResume(client::JobClient& client);
  absl::StatusOr<v1::JobStatus> CancelAndWait(Cluster& cluster, const std::string& job_id);
  void Fail(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  client::JobClient::Options ClientOptions(Cluster& cluster) const;

  const Options options_;

  mutable absl::Mutex mu_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  client::JobClient* client_ ABSL_GUARDED_BY(mu_) = nullptr;  // of the Run under way
};

}  // namespace tessera::local

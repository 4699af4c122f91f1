#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/backoff.h"
#include "common/cluster/master_survey.h"
#include "common/rpc/channels.h"
#include "tessera/v1/job_service.grpc.pb.h"
#include "tessera/v1/job_service.pb.h"

namespace tessera::client {

// Calls of a program to the master about jobs. A call waits for a master that does not answer, with
// backoff and for `patience`, then fails with UNAVAILABLE; each try has a deadline of its own.
// Thread-safe. All calls after Interrupt fail.
class JobClient {
 public:
  struct Options {
    std::string master_address = "127.0.0.1:7070";
    Channels* channels = nullptr;  // borrowed, outlives the client
    // How long each call waits for a master that does not answer; 0: one try. The last try has at
    // least a second, and if the address is a list there is one more to say why it failed.
    absl::Duration patience = absl::Seconds(10);
    absl::Duration call_limit = absl::Seconds(10);
    Backoff::Options backoff;
    // Called with whom the client waits for, when a wait begins and every few seconds from then on.
    std::function<void(const std::string&)> on_wait;
  };
  explicit JobClient(Options options);

  // Returns the job's id. Never sends the job twice. UNKNOWN: the master was lost after the job was
  // sent, or cannot write it now; not to be tried again before List shows whether it has the job.
  absl::StatusOr<std::string> Submit(const v1::SubmitRequest& request);
  absl::StatusOr<v1::JobStatus> Get(const std::string& job_id);
  // All jobs, newest first.
  absl::StatusOr<std::vector<v1::JobStatus>> List();
  absl::Status Cancel(const std::string& job_id);
  // Returns when the request is durable; a second try after a lost answer is no error.
  absl::Status Suspend(const std::string& job_id);
  absl::Status Resume(const std::string& job_id);
  // Waits until the job, which is being suspended, is suspended. FAILED_PRECONDITION: the job runs
  // on or has ended.
  absl::StatusOr<v1::JobStatus> AwaitSuspended(const std::string& job_id);
  // Returns how many ps the job is to have, whatever was asked for; 0: as many as live when it
  // starts. A second try asks for the same again.
  absl::StatusOr<uint32_t> Scale(const v1::ScaleRequest& request);
  absl::StatusOr<v1::ClusterStatus> GetCluster();
  // Calls `on_status` with the job's status now and at every change, in this thread, until the job
  // has ended; returns its last status. Goes on over restarts of the master.
  absl::StatusOr<v1::JobStatus> Watch(const std::string& job_id,
                                      const std::function<void(const v1::JobStatus&)>& on_status);
  // Makes the calls under way, and all later ones, soon fail with CANCELLED.
  void Interrupt() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Stub = v1::JobService::Stub;
  // One try of a call, under the given context.
  using Try = std::function<absl::Status(Stub&, grpc::ClientContext&)>;
  absl::Status CallOnce(absl::Duration limit, const Try& call);
  absl::Status CallWithPatience(const Try& call);
  void Reconnect() ABSL_LOCKS_EXCLUDED(mu_);
  // False: interrupted.
  bool Sleep(absl::Duration duration);
  // MasterSurvey::Why.
  std::string Why(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  std::string Waiting(const std::string& why, absl::Duration since) const;

  const Options options_;

  absl::Mutex mu_;
  // Shared with the calls under way; replaced by a new connection after a try has failed.
  std::shared_ptr<Stub> stub_ ABSL_GUARDED_BY(mu_);
  bool interrupted_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<grpc::ClientContext*> running_ ABSL_GUARDED_BY(mu_);
  std::vector<MasterSurvey*> surveys_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::client

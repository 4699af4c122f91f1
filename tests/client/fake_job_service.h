#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/rpc/channels.h"
#include "common/rpc/server.h"
#include "common/version.h"
#include "gtest/gtest.h"
#include "tessera/v1/job_service.grpc.pb.h"

namespace tessera::client {

// A master that answers what a test has put into it. Thread-safe.
class FakeJobService final : public v1::JobService::Service {
 public:
  // The next calls of any kind fail with these, oldest first; then calls succeed.
  void FailNext(std::vector<grpc::Status> statuses) {
    absl::MutexLock lock(&mu_);
    failures_.insert(failures_.end(), statuses.begin(), statuses.end());
  }
  // What each Watch stream sends, one list a stream; the last list is sent to all later ones.
  void SetStreams(std::vector<std::vector<v1::JobStatus>> streams) {
    absl::MutexLock lock(&mu_);
    streams_.assign(streams.begin(), streams.end());
  }
  void SetJobs(std::vector<v1::JobStatus> jobs) {
    absl::MutexLock lock(&mu_);
    jobs_ = std::move(jobs);
  }
  void SetProtocol(uint32_t protocol) {
    absl::MutexLock lock(&mu_);
    protocol_ = protocol;
  }
  std::vector<v1::SubmitRequest> submitted() {
    absl::MutexLock lock(&mu_);
    return submitted_;
  }
  std::vector<std::string> cancelled() {
    absl::MutexLock lock(&mu_);
    return cancelled_;
  }
  // "suspend JOB", "resume JOB"; what each Scale asked for.
  std::vector<std::string> asked() {
    absl::MutexLock lock(&mu_);
    return asked_;
  }
  // What the most patient Get left for its answer.
  absl::Duration longest_get() {
    absl::MutexLock lock(&mu_);
    return longest_get_;
  }
  std::vector<v1::ScaleRequest> scaled() {
    absl::MutexLock lock(&mu_);
    return scaled_;
  }
  // Called as a job is submitted, before the answer.
  void OnSubmit(std::function<void()> call) {
    absl::MutexLock lock(&mu_);
    on_submit_ = std::move(call);
  }
  // Watch streams stay open after their statuses until the client leaves.
  void HoldStreams() {
    absl::MutexLock lock(&mu_);
    hold_ = true;
  }

  grpc::Status Submit(grpc::ServerContext*, const v1::SubmitRequest* request,
                      v1::SubmitResponse* response) override {
    absl::MutexLock lock(&mu_);
    submitted_.push_back(*request);
    if (on_submit_) on_submit_();
    if (const grpc::Status status = NextFailure(); !status.ok()) return status;
    response->set_job_id(request->spec().name() + "-1");
    return grpc::Status::OK;
  }
  grpc::Status Get(grpc::ServerContext* context, const v1::GetRequest* request,
                   v1::JobStatus* response) override {
    absl::MutexLock lock(&mu_);
    const absl::Duration limit = absl::FromChrono(context->deadline()) - absl::Now();
    longest_get_ = std::max(longest_get_, limit);
    if (const grpc::Status status = NextFailure(); !status.ok()) return status;
    for (const v1::JobStatus& job : jobs_) {
      if (job.job_id() == request->job_id()) {
        *response = job;
        return grpc::Status::OK;
      }
    }
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "no job " + request->job_id());
  }
  grpc::Status List(grpc::ServerContext*, const v1::ListRequest*,
                    v1::ListResponse* response) override {
    absl::MutexLock lock(&mu_);
    if (const grpc::Status status = NextFailure(); !status.ok()) return status;
    for (const v1::JobStatus& job : jobs_) *response->add_jobs() = job;
    return grpc::Status::OK;
  }
  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchRequest* request,
                     grpc::ServerWriter<v1::JobStatus>* writer) override {
    std::vector<v1::JobStatus> statuses;
    bool hold = false;
    {
      absl::MutexLock lock(&mu_);
      if (const grpc::Status status = NextFailure(); !status.ok()) return status;
      if (streams_.empty()) {
        return grpc::Status(grpc::StatusCode::NOT_FOUND, "no job " + request->job_id());
      }
      statuses = streams_.front();
      if (streams_.size() > 1) streams_.pop_front();
      hold = hold_;
    }
    for (const v1::JobStatus& status : statuses) writer->Write(status);
    while (hold && !context->IsCancelled()) absl::SleepFor(absl::Milliseconds(1));
    return grpc::Status::OK;
  }
  grpc::Status Cancel(grpc::ServerContext*, const v1::CancelRequest* request,
                      v1::CancelResponse*) override {
    absl::MutexLock lock(&mu_);
    if (const grpc::Status status = NextFailure(); !status.ok()) return status;
    cancelled_.push_back(request->job_id());
    return grpc::Status::OK;
  }
  grpc::Status Suspend(grpc::ServerContext*, const v1::SuspendRequest* request,
                       v1::SuspendResponse*) override {
    return Ask("suspend " + request->job_id());
  }
  grpc::Status Resume(grpc::ServerContext*, const v1::ResumeRequest* request,
                      v1::ResumeResponse*) override {
    return Ask("resume " + request->job_id());
  }
  grpc::Status Scale(grpc::ServerContext*, const v1::ScaleRequest* request,
                     v1::ScaleResponse* response) override {
    absl::MutexLock lock(&mu_);
    if (const grpc::Status status = NextFailure(); !status.ok()) return status;
    scaled_.push_back(*request);
    response->set_ps(request->ps());
    response->set_workers(request->workers());
    return grpc::Status::OK;
  }
  grpc::Status GetCluster(grpc::ServerContext*, const v1::GetClusterRequest*,
                          v1::ClusterStatus* response) override {
    absl::MutexLock lock(&mu_);
    response->set_version("9.9");
    response->set_protocol(protocol_);
    return grpc::Status::OK;
  }

 private:
  grpc::Status Ask(const std::string& what) {
    absl::MutexLock lock(&mu_);
    asked_.push_back(what);
    return NextFailure();
  }
  grpc::Status NextFailure() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (failures_.empty()) return grpc::Status::OK;
    const grpc::Status status = failures_.front();
    failures_.pop_front();
    return status;
  }

  absl::Mutex mu_;
  std::deque<grpc::Status> failures_ ABSL_GUARDED_BY(mu_);
  std::deque<std::vector<v1::JobStatus>> streams_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::JobStatus> jobs_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::SubmitRequest> submitted_ ABSL_GUARDED_BY(mu_);
  std::function<void()> on_submit_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> cancelled_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> asked_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::ScaleRequest> scaled_ ABSL_GUARDED_BY(mu_);
  uint32_t protocol_ ABSL_GUARDED_BY(mu_) = kProtocolVersion;
  bool hold_ ABSL_GUARDED_BY(mu_) = false;
  absl::Duration longest_get_ ABSL_GUARDED_BY(mu_) = absl::ZeroDuration();
};

// The fake behind an in-process server named "master:1".
class FakeMaster {
 public:
  FakeMaster() { Start(); }
  void Start() {
    ServerOptions options;
    options.listen = "master:1";
    options.in_process = &channels;
    auto server = RpcServer::Start(options, {&service});
    EXPECT_TRUE(server.ok()) << server.status();
    if (server.ok()) server_ = *std::move(server);
  }
  void Stop() { server_.reset(); }

  InProcessChannels channels;
  FakeJobService service;

 private:
  std::unique_ptr<RpcServer> server_;
};

}  // namespace tessera::client

#pragma once

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "common/failpoint.h"
#include "common/job/job_state.h"
#include "master/master.h"
#include "tessera/v1/job_service.grpc.pb.h"
#include "tessera/v1/metrics.grpc.pb.h"
#include "tests/common/metric_value.h"
#include "tests/master/core_harness.h"
#include "tests/master/fake_nodes.h"

// A whole master in this process, with ps and workers that compute nothing.
namespace tessera::master {

class MasterTest : public testing::Test {
 protected:
  MasterTest() {
    folder_ = absl::StrCat(testing::TempDir(), "master_test.", getpid(), ".",
                           testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    StartMaster();
  }
  ~MasterTest() override {
    workers_.clear();
    ps_.clear();
    master_.reset();
    std::filesystem::remove_all(folder_);
  }
  Master::Options Options() {
    Master::Options options;
    options.server.listen = "master";
    options.server.in_process = &channels_;
    options.data_dir = folder_ + "/state";
    options.checkpoint_root = folder_ + "/checkpoints";
    options.channels = &channels_;
    options.heartbeat = absl::Milliseconds(200);
    options.settle = absl::Milliseconds(100);
    return options;
  }
  void StartMaster() {
    auto master = Master::Start(Options());
    ASSERT_TRUE(master.ok()) << master.status();
    master_ = *std::move(master);
  }
  // While no worker calls it.
  void StopMaster() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (const auto& worker : workers_) worker->calls_.Lock();
    master_.reset();
    for (const auto& worker : workers_) worker->calls_.Unlock();
  }
  std::string Metrics() {
    const auto stub = v1::MetricsService::NewStub(channels_.Connect("master"));
    grpc::ClientContext context;
    v1::GetMetricsResponse response;
    EXPECT_TRUE(stub->GetMetrics(&context, {}, &response).ok());
    return response.text();
  }
  void StartNodes(int ps, int workers) {
    for (int i = 0; i < ps; ++i) {
      ps_.push_back(
          std::make_unique<FakePs>(absl::StrCat("ps-", i), &channels_, folder_ + "/checkpoints"));
    }
    for (int i = 0; i < workers; ++i) {
      workers_.push_back(std::make_unique<FakeWorker>(absl::StrCat("worker-", i), &channels_));
    }
  }
  std::unique_ptr<v1::JobService::Stub> Jobs() {
    return v1::JobService::NewStub(channels_.Connect("master"));
  }
  std::string Submit(const v1::JobSpec& spec, uint32_t workers, uint32_t ps) {
    v1::SubmitRequest request;
    *request.mutable_spec() = spec;
    request.set_workers(workers);
    request.set_ps(ps);
    grpc::ClientContext context;
    v1::SubmitResponse response;
    const absl::Status status = FromGrpc(Jobs()->Submit(&context, request, &response));
    EXPECT_TRUE(status.ok()) << status;
    return response.job_id();
  }
  v1::JobStatus Get(const std::string& id) {
    v1::GetRequest request;
    request.set_job_id(id);
    grpc::ClientContext context;
    v1::JobStatus job;
    const absl::Status status = FromGrpc(Jobs()->Get(&context, request, &job));
    EXPECT_TRUE(status.ok()) << status;
    return job;
  }
  // False: not within 20 s.
  static bool Await(const std::function<bool()>& ready) {
    for (int i = 0; i < 10000 && !ready(); ++i) absl::SleepFor(absl::Milliseconds(2));
    return ready();
  }
  bool HasEvent(const std::string& id, const std::string& text) {
    const v1::JobStatus job = Get(id);
    return std::any_of(job.events().begin(), job.events().end(), [&](const v1::Event& event) {
      return absl::StrContains(event.message(), text);
    });
  }
  // All that Watch says until the job ends or `enough`.
  std::vector<v1::JobStatus> Watch(const std::string& id,
                                   std::function<bool(const v1::JobStatus&)> enough = nullptr) {
    v1::WatchRequest request;
    request.set_job_id(id);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    auto stream = Jobs()->Watch(&context, request);
    std::vector<v1::JobStatus> all;
    v1::JobStatus job;
    while (stream->Read(&job)) {
      all.push_back(job);
      if (enough && enough(job)) {
        context.TryCancel();
        return all;
      }
    }
    const absl::Status status = FromGrpc(stream->Finish());
    EXPECT_TRUE(status.ok()) << status;
    return all;
  }
  // A job of 2000 steps, with a checkpoint every 50, that loses one of two workers after its first
  // checkpoint and gets another.
  v1::JobStatus RunThroughTheLossOfAWorker() {
    v1::JobSpec spec = SmallJob();
    spec.mutable_train()->set_epochs(200);
    spec.mutable_evaluation()->set_every_epochs(1000);
    spec.mutable_checkpoint()->set_every_steps(50);
    StartNodes(1, 2);
    const std::string id = Submit(spec, 2, 1);
    Watch(id, [](const v1::JobStatus& job) { return !job.checkpoint().empty(); });
    workers_.pop_back();
    Watch(id, [](const v1::JobStatus& job) {
      return std::any_of(job.waits().begin(), job.waits().end(), [](const std::string& wait) {
        return absl::StrContains(wait, "a worker to take over rank 1, which worker-1 had");
      });
    });
    EXPECT_GT(MetricValue(Metrics(), "tessera_master_job_waits{job=\"" + id + "\"}"), 0);
    workers_.push_back(std::make_unique<FakeWorker>("replacement", &channels_));
    return Watch(id).back();
  }

  std::string folder_;
  InProcessChannels channels_;
  std::unique_ptr<Master> master_;
  std::vector<std::unique_ptr<FakePs>> ps_;
  std::vector<std::unique_ptr<FakeWorker>> workers_;
};

}  // namespace tessera::master

#include "master/master.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "common/failpoint.h"
#include "common/job/job_state.h"
#include "tessera/v1/job_service.grpc.pb.h"
#include "tessera/v1/metrics.grpc.pb.h"
#include "tests/common/metric_value.h"
#include "tests/master/core_harness.h"
#include "tests/master/fake_nodes.h"

namespace tessera::master {
namespace {

using testing::Contains;
using testing::HasSubstr;

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

TEST_F(MasterTest, RunsAJobFromSubmissionToACheckpointThatVerifies) {
  StartNodes(2, 2);
  const std::string id = Submit(SmallJob(), 0, 0);
  const std::vector<v1::JobStatus> seen = Watch(id);
  ASSERT_FALSE(seen.empty());
  const v1::JobStatus& job = seen.back();
  ASSERT_EQ(v1::JobState_Name(job.state()), "SUCCEEDED") << job.message();
  // Of 1000 scored records, 250 positives are ranked above and 250 below all negatives.
  EXPECT_DOUBLE_EQ(job.final_metrics().at("test").metrics().at("auc"), 0.5);
  EXPECT_EQ(job.final_metrics().at("validation").samples(), 1000u);
  const auto manifest =
      VerifyCheckpoint(PosixFileSystem(), folder_ + "/checkpoints/" + job.checkpoint());
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->files_size(), 2);
  EXPECT_EQ(manifest->tables(0).rows(), 2u);
  EXPECT_EQ(manifest->tables(0).slot_floats(), 2u);
  EXPECT_EQ(manifest->position().step(), job.step());
  // Every partition has one owner.
  std::vector<int> owners(4096, 0);
  for (auto& ps : ps_) {
    const v1::OpenJobRequest open = ps->opens().at(0);
    for (uint32_t p : open.partitions()) owners[p] += 1;
  }
  EXPECT_EQ(owners, std::vector<int>(4096, 1));
}

TEST_F(MasterTest, MeasuresWithinTheGroupsThatWorkersReport) {
  StartNodes(1, 2);
  v1::JobSpec spec = SmallJob();
  for (const char* metric : {"auc", "gauc", "accuracy"}) {
    spec.mutable_evaluation()->add_metrics(metric);
  }
  spec.mutable_evaluation()->set_group_by("user");
  const v1::JobStatus job = Watch(Submit(spec, 0, 0)).back();
  ASSERT_EQ(v1::JobState_Name(job.state()), "SUCCEEDED") << job.message();
  const auto& metrics = job.final_metrics().at("test").metrics();
  EXPECT_EQ(metrics.size(), 3u);
  EXPECT_DOUBLE_EQ(metrics.at("auc"), 0.5);
  // The positives that are ranked wrongly are a group of their own, without negatives.
  EXPECT_DOUBLE_EQ(metrics.at("gauc"), 1);
  // Negatives have logits of 0, which counts as positive, and half of the positives -1.
  EXPECT_DOUBLE_EQ(metrics.at("accuracy"), 0.25);
}

TEST_F(MasterTest, AfterTheLossOfAWorkerTheJobGoesOnWithAnother) {
  const v1::JobStatus job = RunThroughTheLossOfAWorker();
  EXPECT_EQ(v1::JobState_Name(job.state()), "SUCCEEDED") << job.message();
  EXPECT_EQ(job.restarts(), 0u);
  EXPECT_EQ(job.step(), 2000u);
  EXPECT_EQ(ps_[0]->opens().size(), 1u);
  EXPECT_THAT(job.nodes(2).name(), "replacement");
  // The newest three are kept.
  EXPECT_EQ(ListCheckpoints(PosixFileSystem(), folder_ + "/checkpoints/" + job.job_id())->size(),
            3u);
}

TEST_F(MasterTest, PrintsWhatItKnowsOfJobsProcessesAndUnits) {
  ASSERT_EQ(v1::JobState_Name(RunThroughTheLossOfAWorker().state()), "SUCCEEDED");

  const std::string text = Metrics();
  const auto value = [&text](const std::string& name) { return MetricValue(text, name); };
  EXPECT_EQ(value("tessera_master_jobs{state=\"succeeded\"}"), 1);
  EXPECT_EQ(value("tessera_master_jobs{state=\"running\"}"), 0);
  EXPECT_EQ(value("tessera_master_jobs_ended_total{how=\"succeeded\"}"), 1);
  EXPECT_EQ(value("tessera_master_jobs_ended_total{how=\"failed\"}"), 0);
  EXPECT_EQ(value("tessera_master_state_unwritten_seconds"), 0);
  EXPECT_THAT(text, testing::Not(HasSubstr("tessera_master_job_step{"))) << "it has ended";
  EXPECT_EQ(value("tessera_master_live_nodes{kind=\"ps\"}"), 1);
  EXPECT_EQ(value("tessera_master_live_nodes{kind=\"worker\"}"), 2);
  EXPECT_EQ(value("tessera_master_job_restarts_total"), 0);
  EXPECT_EQ(value("tessera_master_worker_takeovers_total"), 1);
  EXPECT_EQ(value("tessera_master_checkpoints_failed_total"), 0);
  // Of 2000 steps one in 50.
  EXPECT_GE(value("tessera_master_checkpoints_committed_total"), 39);
  // A unit that a lost worker held is handed out again, and done once.
  EXPECT_GT(value("tessera_master_units_done_total"), 0);
  EXPECT_LE(value("tessera_master_units_done_total"),
            value("tessera_master_units_handed_out_total"));
  EXPECT_THAT(text, HasSubstr("tessera_build_info{process=\"master\""));
}

TEST_F(MasterTest, AMasterThatIsStartedAgainTakesUpTheRunningJob) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_train()->set_epochs(100);
  spec.mutable_evaluation()->set_every_epochs(1000);
  spec.mutable_checkpoint()->set_every_steps(100);
  StartNodes(1, 2);
  const std::string id = Submit(spec, 2, 1);
  Watch(id, [](const v1::JobStatus& job) { return !job.checkpoint().empty(); });
  StopMaster();
  StartMaster();
  const v1::JobStatus job = Watch(id).back();
  EXPECT_EQ(v1::JobState_Name(job.state()), "SUCCEEDED") << job.message();
  EXPECT_EQ(job.restarts(), 0u);
  EXPECT_EQ(job.generation(), 1u);
  EXPECT_EQ(ps_[0]->opens().size(), 1u);
  EXPECT_EQ(job.samples(), 200 * job.step());
  // A master that stops has lost nobody.
  for (const v1::Event& event : job.events()) {
    EXPECT_THAT(event.message(), testing::Not(HasSubstr("lost (")));
  }
}

TEST_F(MasterTest, HistoryComesWhenAskedForAndAtTheEnd) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_train()->set_epochs(100);
  StartNodes(1, 1);
  const std::string id = Submit(spec, 1, 1);
  const v1::JobStatus running =
      Watch(id, [](const v1::JobStatus& job) { return job.step() > 100; }).back();
  ASSERT_EQ(v1::JobState_Name(running.state()), "RUNNING");
  EXPECT_EQ(running.history_size(), 0);
  EXPECT_GT(Get(id).history_size(), 0);
  const v1::JobStatus ended = Watch(id).back();
  ASSERT_GT(ended.history_size(), 0);
  EXPECT_EQ(ended.history().rbegin()->step(), ended.step());
}

TEST_F(MasterTest, APsOfARunningJobJoinsAgainWhileNothingCanBeWritten) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_train()->set_epochs(100);
  spec.mutable_evaluation()->set_every_epochs(1000);
  StartNodes(1, 1);
  const std::string id = Submit(spec, 1, 1);
  Watch(id, [](const v1::JobStatus& job) { return job.step() > 100; });
  const auto has = [](absl::string_view what) {
    return [what](const v1::JobStatus& job) {
      return std::any_of(job.events().begin(), job.events().end(), [what](const v1::Event& event) {
        return absl::StrContains(event.message(), what);
      });
    };
  };
  workers_.clear();
  Watch(id, has("worker-0 lost"));
  master_.reset();
  // All but what a master writes before it serves.
  ASSERT_TRUE(ArmFailpoints("master.state_log.apply=error@2-").ok());
  StartMaster();
  Watch(id, has("ps-0 joined"));
  absl::SleepFor(absl::Milliseconds(100));
  DisarmFailpoints();
  workers_.push_back(std::make_unique<FakeWorker>("replacement", &channels_));
  const v1::JobStatus job = Watch(id).back();
  EXPECT_EQ(v1::JobState_Name(job.state()), "SUCCEEDED") << job.message();
  EXPECT_EQ(job.restarts(), 0u);
}

TEST_F(MasterTest, TheStatusSaysThatNothingCanBeWritten) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_train()->set_epochs(100);
  StartNodes(1, 1);
  const std::string id = Submit(spec, 1, 1);
  Watch(id, [](const v1::JobStatus& job) { return job.step() > 100; });
  const auto waits = [](const v1::JobStatus& job) {
    return std::any_of(job.waits().begin(), job.waits().end(), [](const std::string& wait) {
      return absl::StrContains(wait, "the master, which cannot write its state, for ") &&
             absl::StrContains(wait, "an injected error");
    });
  };
  ASSERT_TRUE(ArmFailpoints("master.state_log.apply=error").ok());
  Watch(id, waits);
  const std::string text = Metrics();
  EXPECT_GT(MetricValue(text, "tessera_master_state_unwritten_seconds"), 0);
  EXPECT_GT(MetricValue(text, "tessera_master_job_step{job=\"" + id + "\"}"), 100);
  EXPECT_GT(MetricValue(text, "tessera_master_job_samples{job=\"" + id + "\"}"), 100);
  DisarmFailpoints();
  const v1::JobStatus job = Watch(id).back();
  EXPECT_EQ(v1::JobState_Name(job.state()), "SUCCEEDED") << job.message();
  EXPECT_EQ(job.restarts(), 0u);
  EXPECT_FALSE(waits(job));
}

// A disk whose writes do not end, until they are let go.
class StalledLog final : public StateLog {
 public:
  absl::Status Apply(const std::vector<Write>& batch) override {
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(
        +[](bool* stalls) { return !*stalls; }, &stalls_));
    return log_->Apply(batch);
  }
  absl::StatusOr<std::string> Get(const std::string& key) override { return log_->Get(key); }
  absl::StatusOr<std::map<std::string, std::string>> Scan(const std::string& prefix) override {
    return log_->Scan(prefix);
  }
  void Stall(bool stalls) {
    absl::MutexLock lock(&mu_);
    stalls_ = stalls;
  }

 private:
  const std::unique_ptr<StateLog> log_ = NewMemoryStateLog();
  absl::Mutex mu_;
  bool stalls_ ABSL_GUARDED_BY(mu_) = false;
};

TEST_F(MasterTest, AWriteOfItsStateThatDoesNotEndIsSaidToBeTheMasters) {
  StalledLog log;
  master_.reset();
  Master::Options options = Options();
  options.state_log = &log;
  auto master = Master::Start(options);
  ASSERT_TRUE(master.ok()) << master.status();
  master_ = *std::move(master);
  v1::JobSpec spec = SmallJob();
  spec.mutable_train()->set_epochs(100);
  StartNodes(1, 1);
  const std::string id = Submit(spec, 1, 1);
  Watch(id, [](const v1::JobStatus& job) { return job.step() > 100; });
  log.Stall(true);
  EXPECT_TRUE(Await([&] {
    const v1::JobStatus job = Get(id);
    return std::any_of(job.waits().begin(), job.waits().end(), [](const std::string& wait) {
      return absl::StrContains(wait, "the master, which cannot write its state, for ") &&
             absl::StrContains(wait, "a write to its state log does not end");
    });
  }));
  EXPECT_GT(MetricValue(Metrics(), "tessera_master_state_unwritten_seconds"), 0.9);
  log.Stall(false);
  const v1::JobStatus job = Watch(id).back();
  EXPECT_EQ(v1::JobState_Name(job.state()), "SUCCEEDED") << job.message();
  EXPECT_EQ(job.restarts(), 0u);
  workers_.clear();
  ps_.clear();
  master_.reset();
}

TEST_F(MasterTest, AFreshDataFolderGivesNoNumberThatHasAFolderOfCheckpoints) {
  StartNodes(1, 1);
  const std::string first = Watch(Submit(SmallJob(), 1, 1)).back().job_id();
  ASSERT_EQ(first, "demo-1");
  std::filesystem::create_directories(folder_ + "/checkpoints/another-job-41");
  std::filesystem::create_directories(folder_ + "/checkpoints/notes-99999999999999999999");
  StopMaster();
  std::filesystem::remove_all(folder_ + "/state");
  StartMaster();
  EXPECT_EQ(Submit(SmallJob(), 1, 1), "demo-42");
}

TEST_F(MasterTest, ACheckpointThatAQueuedJobStartsFromIsKept) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_train()->set_epochs(100);
  spec.mutable_evaluation()->set_every_epochs(1000);
  spec.mutable_checkpoint()->set_every_steps(100);
  spec.mutable_checkpoint()->set_keep(1);
  StartNodes(1, 1);
  ps_[0]->held_ = 1;
  const std::string first = Submit(spec, 1, 1);
  spec.mutable_start()->set_checkpoint("./" + first + "/step-000000000100/");
  const std::string second = Submit(spec, 1, 1);
  ps_[0]->held_ = 0;
  const v1::JobStatus job = Watch(second).back();
  EXPECT_EQ(v1::JobState_Name(job.state()), "SUCCEEDED") << job.message();
  EXPECT_EQ(Get(first).step(), 1000u);
}

TEST_F(MasterTest, SoIsOneOfAJobThatIsSubmittedWhileTheNextOneIsWritten) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_train()->set_epochs(100);
  spec.mutable_evaluation()->set_every_epochs(1000);
  spec.mutable_checkpoint()->set_every_steps(100);
  spec.mutable_checkpoint()->set_keep(1);
  StartNodes(1, 1);
  ps_[0]->held_ = 2;
  const std::string first = Submit(spec, 1, 1);
  const std::string start = first + "/step-000000000100";
  ASSERT_TRUE(Await([&] { return ps_[0]->writes_ == 2; }));
  ASSERT_EQ(Get(first).checkpoint(), start);
  spec.mutable_start()->set_checkpoint(start);
  const std::string second = Submit(spec, 1, 1);
  ps_[0]->held_ = 0;
  const v1::JobStatus job = Watch(second).back();
  EXPECT_EQ(v1::JobState_Name(job.state()), "SUCCEEDED") << job.message();
}

TEST_F(MasterTest, AFullDiskAtTheLastCheckpointIsWaitedFor) {
  StartNodes(2, 1);
  ps_[1]->full_ = true;
  const std::string id = Submit(SmallJob(), 1, 2);
  EXPECT_TRUE(Await([&] {
    return HasEvent(id, "write the checkpoint on ps-1: no space left on device; it is cut again");
  }));
  EXPECT_EQ(Get(id).state(), v1::RUNNING);
  ps_[1]->full_ = false;
  const v1::JobStatus job = Watch(id).back();
  EXPECT_EQ(v1::JobState_Name(job.state()), "SUCCEEDED") << job.message();
  EXPECT_EQ(job.restarts(), 0u);
}

TEST_F(MasterTest, TwoClustersDoNotWriteBelowOneCheckpointRoot) {
  StartNodes(1, 1);
  const std::string own = *ReadWholeFile(PosixFileSystem(), folder_ + "/checkpoints/CLUSTER");
  Master::Options options = Options();
  options.data_dir = folder_ + "/other-state";
  {
    // Who cannot serve claims nothing.
    ServerOptions taken;
    taken.listen = "127.0.0.1:0";
    const auto server = RpcServer::Start(taken, {});
    ASSERT_TRUE(server.ok()) << server.status();
    options.server.in_process = nullptr;
    options.server.listen = (*server)->address();
    EXPECT_EQ(Master::Start(options).status().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(*ReadWholeFile(PosixFileSystem(), folder_ + "/checkpoints/CLUSTER"), own);
  }
  options.server.in_process = &channels_;
  options.server.listen = "other";
  ASSERT_TRUE(Master::Start(options).ok());
  const std::string other = *ReadWholeFile(PosixFileSystem(), folder_ + "/checkpoints/CLUSTER");
  EXPECT_NE(own, other);
  // The later one has it; the earlier one's jobs write nothing, say why, and wait.
  const std::string id = Submit(SmallJob(), 1, 1);
  EXPECT_TRUE(Await(
      [&] { return HasEvent(id, "another master has begun with the same --checkpoint-root"); }));
  EXPECT_EQ(Get(id).state(), v1::RUNNING);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/checkpoints/" + id));
  // Nor does it begin again.
  StopMaster();
  const auto again = Master::Start(Options());
  EXPECT_EQ(again.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(again.status().message()), HasSubstr("names cluster"));
  // The other one does, with the state it had; until a person gives the root back.
  EXPECT_TRUE(Master::Start(options).ok());
  std::ofstream(folder_ + "/checkpoints/CLUSTER") << own;
  StartMaster();
  const v1::JobStatus job = Watch(id).back();
  EXPECT_EQ(v1::JobState_Name(job.state()), "SUCCEEDED") << job.message();
}

// The folder of a mount is there, and empty, where nothing is mounted.
TEST_F(MasterTest, ACheckpointRootThatIsNotMountedLosesNoJob) {
  const std::string root = folder_ + "/checkpoints", away = folder_ + "/unmounted";
  const auto unmount = [&] {
    std::filesystem::rename(root, away);
    std::filesystem::create_directory(root);
  };
  const auto mount = [&] {
    std::filesystem::remove_all(root);
    std::filesystem::rename(away, root);
  };
  v1::JobSpec spec = SmallJob();
  spec.mutable_train()->set_epochs(400);
  spec.mutable_evaluation()->set_every_epochs(1000);
  spec.mutable_checkpoint()->set_every_steps(50);
  StartNodes(1, 1);
  const std::string id = Submit(spec, 1, 1);
  const auto written = [](const v1::JobStatus& job) { return !job.checkpoint().empty(); };
  Watch(id, written);
  // A master that serves: what it cannot find now is not lost, and nothing is written beside it.
  unmount();
  ps_.pop_back();
  StartNodes(1, 0);
  EXPECT_TRUE(Await([&] { return HasEvent(id, "is its file system mounted?"); }));
  EXPECT_FALSE(HasEnded(Get(id).state())) << Get(id).message();
  EXPECT_FALSE(std::filesystem::exists(root + "/" + id));
  // One that begins.
  StopMaster();
  const auto again = Master::Start(Options());
  EXPECT_EQ(again.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(again.status().message()), HasSubstr("has no file CLUSTER"));
  mount();
  StartMaster();
  const v1::JobStatus job = Watch(id).back();
  EXPECT_EQ(v1::JobState_Name(job.state()), "SUCCEEDED") << job.message();
}

TEST_F(MasterTest, ARootThatTheMasterLosesBeforeTheLastCommitIsWaitedFor) {
  // As the ps have it mounted, and as the master has.
  const std::string shared = folder_ + "/shared", root = folder_ + "/checkpoints";
  std::filesystem::rename(root, shared);
  std::filesystem::create_directory_symlink(shared, root);
  ps_.push_back(std::make_unique<FakePs>("ps-0", &channels_, shared));
  StartNodes(0, 1);
  ps_[0]->held_ = 1;
  const std::string id = Submit(SmallJob(), 1, 1);
  ASSERT_TRUE(Await([&] { return ps_[0]->writes_ == 1; }));
  std::filesystem::remove(root);
  std::filesystem::create_directory(root);
  ps_[0]->held_ = 0;
  EXPECT_TRUE(Await([&] { return HasEvent(id, "is its file system mounted?"); }));
  EXPECT_EQ(Get(id).state(), v1::RUNNING) << Get(id).message();
  std::filesystem::remove_all(root);
  std::filesystem::create_directory_symlink(shared, root);
  const v1::JobStatus job = Watch(id).back();
  EXPECT_EQ(v1::JobState_Name(job.state()), "SUCCEEDED") << job.message();
  EXPECT_EQ(job.restarts(), 0u);
}

TEST_F(MasterTest, AClaimThatFailsAtTheStartIsTriedAgain) {
  master_.reset();
  std::filesystem::remove_all(folder_);
  const auto cluster = [&] {
    return *ReadWholeFile(PosixFileSystem(), folder_ + "/checkpoints/CLUSTER");
  };
  // The first write is the master's own, the second one the name that it will claim the root by.
  ASSERT_TRUE(ArmFailpoints("master.state_log.apply=error@3").ok());
  StartMaster();
  DisarmFailpoints();
  const std::string own = cluster();
  const std::string id = Submit(SmallJob(), 1, 1);
  StopMaster();
  StartMaster();
  EXPECT_EQ(cluster(), own) << "it did not know its own name";
  StartNodes(1, 1);
  EXPECT_EQ(v1::JobState_Name(Watch(id).back().state()), "SUCCEEDED");
  StopMaster();
  StartMaster();
  EXPECT_EQ(cluster(), own) << "its state did not know that the cluster had claimed the root";
  // So is that of a cluster which takes the root over from this one.
  workers_.clear();
  ps_.clear();
  StopMaster();
  std::filesystem::remove_all(folder_ + "/state");
  ASSERT_TRUE(ArmFailpoints("master.state_log.apply=error@2").ok());
  StartMaster();
  DisarmFailpoints();
  EXPECT_EQ(cluster(), own);
  StartNodes(1, 1);
  EXPECT_EQ(v1::JobState_Name(Watch(Submit(SmallJob(), 1, 1)).back().state()), "SUCCEEDED");
  EXPECT_NE(cluster(), own);
}

// The number of its first job was chosen where another cluster's folders could not be seen.
TEST_F(MasterTest, ARootOfAnotherClusterIsNotClaimedOnceThereAreJobs) {
  const std::string root = folder_ + "/checkpoints", other = folder_ + "/other";
  const auto cluster = [&] { return *ReadWholeFile(PosixFileSystem(), root + "/CLUSTER"); };
  const std::string owner = cluster();
  StartNodes(1, 1);
  const std::string last = Watch(Submit(SmallJob(), 1, 1)).back().checkpoint();
  workers_.clear();
  ps_.clear();
  StopMaster();
  std::filesystem::remove_all(folder_ + "/state");
  std::filesystem::rename(root, other);
  // The first write is the master's own, the third one that of its claim.
  ASSERT_TRUE(ArmFailpoints("master.state_log.apply=error@3").ok());
  StartMaster();
  DisarmFailpoints();
  // The root's file system is mounted.
  std::filesystem::remove_all(root);
  std::filesystem::rename(other, root);
  const std::string id = Submit(SmallJob(), 1, 1);
  ASSERT_EQ(id, last.substr(0, last.find('/')));
  StartNodes(1, 1);
  EXPECT_TRUE(Await([&] { return HasEvent(id, "which had jobs before it saw that"); }));
  // Nor does a job that begins anew take those checkpoints for its own.
  ps_.pop_back();
  StartNodes(1, 0);
  EXPECT_TRUE(Await([&] {
    return Get(id).restarts() == 1 && HasEvent(id, "which had jobs before it saw that") &&
           Get(id).phase() == "checkpointing";
  }));
  EXPECT_EQ(cluster(), owner);
  StopMaster();
  StartMaster();
  EXPECT_EQ(cluster(), owner);
  EXPECT_FALSE(HasEnded(Get(id).state())) << Get(id).message();
  EXPECT_TRUE(std::filesystem::exists(root + "/" + last + "/" + kManifestName));
  // A root of its own.
  std::filesystem::rename(root, other);
  std::filesystem::create_directory(root);
  EXPECT_EQ(v1::JobState_Name(Watch(id).back().state()), "SUCCEEDED");
  EXPECT_NE(cluster(), owner);
}

TEST_F(MasterTest, AMasterThatStopsWhileTheLastCheckpointIsWrittenFailsNoJob) {
  StartNodes(1, 1);
  ps_[0]->held_ = 1;
  const std::string id = Submit(SmallJob(), 1, 1);
  ASSERT_TRUE(Await([&] { return ps_[0]->writes_ == 1; }));
  StopMaster();
  ps_[0]->held_ = 0;
  StartMaster();
  const v1::JobStatus job = Watch(id).back();
  EXPECT_EQ(v1::JobState_Name(job.state()), "SUCCEEDED") << job.message();
  EXPECT_EQ(job.restarts(), 0u);
}

TEST_F(MasterTest, ASecondMasterOnTheSameDataFolderIsRefused) {
  Master::Options options = Options();
  options.server.listen = "other";
  const auto second = Master::Start(options);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("in use by another process"));
}

TEST_F(MasterTest, AScaleThatIsRefusedChangesNothing) {
  const std::string id = Submit(SmallJob(), 2, 1);
  const auto scale = [&](uint32_t workers, uint32_t ps, v1::ScaleResponse* response) {
    v1::ScaleRequest request;
    request.set_job_id(id);
    request.set_workers(workers);
    request.set_ps(ps);
    grpc::ClientContext context;
    return FromGrpc(Jobs()->Scale(&context, request, response));
  };
  v1::ScaleResponse response;
  EXPECT_EQ(scale(1, 5000, &response).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Get(id).workers(), 2u);
  EXPECT_TRUE(scale(0, 3, &response).ok());
  EXPECT_EQ(response.ps(), 3u);
  EXPECT_EQ(response.workers(), 2u);
  EXPECT_TRUE(scale(4, 0, &response).ok());
  EXPECT_EQ(response.ps(), 3u);
  EXPECT_EQ(response.workers(), 4u);
}

TEST_F(MasterTest, SaysWhatIsWrongWithARequest) {
  grpc::ClientContext submit_context, get_context, cancel_context;
  v1::SubmitRequest submit;
  v1::SubmitResponse submitted;
  EXPECT_EQ(Jobs()->Submit(&submit_context, submit, &submitted).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  const std::string id = Submit(SmallJob(), 1, 1);
  v1::GetRequest get;
  get.set_job_id("nope");
  v1::JobStatus job;
  const grpc::Status unknown = Jobs()->Get(&get_context, get, &job);
  EXPECT_EQ(unknown.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(unknown.error_message(), HasSubstr(id));
  v1::CancelRequest cancel;
  cancel.set_job_id(id);
  v1::CancelResponse cancelled;
  EXPECT_TRUE(Jobs()->Cancel(&cancel_context, cancel, &cancelled).ok());
  EXPECT_EQ(Get(id).reason(), "Cancelled");
  EXPECT_EQ(Watch(id).size(), 1u);
}

TEST_F(MasterTest, KnowsItsClusterAndStopsPromptlyWithStreamsOpen) {
  StartNodes(1, 1);
  const std::string id = Submit(SmallJob(), 2, 1);  // one worker too few
  Watch(id, [this](const v1::JobStatus& job) {
    return job.reason() == "WaitingForWorkers" &&
           absl::StrContains(job.message(), "1 of 2 workers") &&
           absl::StrContains(job.message(), "tessera-worker --master " + master_->address());
  });
  grpc::ClientContext context;
  v1::ClusterStatus cluster;
  ASSERT_TRUE(Jobs()->GetCluster(&context, v1::GetClusterRequest(), &cluster).ok());
  ASSERT_EQ(cluster.nodes_size(), 2);
  EXPECT_EQ(cluster.nodes(0).name(), "ps-0");
  EXPECT_TRUE(cluster.nodes(1).alive());
  const absl::Time begin = absl::Now();
  master_->Stop(absl::Milliseconds(200));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
}

}  // namespace
}  // namespace tessera::master

#include "master/master.h"

#include <algorithm>
#include <atomic>
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
#include "tests/common/hooked_disk.h"
#include "tests/common/metric_value.h"
#include "tests/master/master_harness.h"

namespace tessera::master {
namespace {

using testing::Contains;
using testing::HasSubstr;

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

TEST_F(MasterTest, NothingIsAcknowledgedOfWhichTheDiskSaysThatItIsNotSynced) {
  const auto disk = std::make_shared<HookedDisk>();
  std::atomic<bool> fails = false;
  disk->BeforeSync([&](const std::string& path) {
    return fails && absl::EndsWith(path, ".log") ? rocksdb::IOStatus::IOError("fsync: drawn")
                                                 : rocksdb::IOStatus::OK();
  });
  master_.reset();
  const auto log = OpenRocksDbStateLog(folder_ + "/synced", disk);
  ASSERT_TRUE(log.ok()) << log.status();
  Master::Options options = Options();
  options.state_log = log->get();
  auto master = Master::Start(options);
  ASSERT_TRUE(master.ok()) << master.status();
  master_ = *std::move(master);
  const std::string first = Submit(SmallJob(), 1, 1);
  fails = true;
  v1::SubmitRequest request;
  *request.mutable_spec() = SmallJob();
  request.set_workers(1);
  request.set_ps(1);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
  v1::SubmitResponse response;
  EXPECT_FALSE(Jobs()->Submit(&context, request, &response).ok()) << response.job_id();
  const auto says_so = [&] {
    const v1::JobStatus job = Get(first);
    return std::any_of(job.waits().begin(), job.waits().end(), [](const std::string& wait) {
      return absl::StrContains(wait, "the master, which cannot write its state, for ") &&
             absl::StrContains(wait, "fsync: drawn");
    });
  };
  EXPECT_TRUE(Await(says_so));
  fails = false;
  EXPECT_TRUE(Await([&] { return !says_so(); }));
  EXPECT_FALSE(Submit(SmallJob(), 1, 1).empty());
  master_.reset();
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

TEST_F(MasterTest, PsOfWhichSomeBeginAnewAreAllToBeginAnew) {
  StartNodes(2, 1);
  v1::JobSpec spec = SmallJob();
  spec.mutable_checkpoint()->set_every_steps(2);
  for (const bool out_of_step : {false, true}) {
    for (const auto& ps : ps_) ps->based_ = 0;
    ps_[1]->whole_ = out_of_step;
    const v1::JobStatus job = Watch(Submit(spec, 0, 0)).back();
    ASSERT_EQ(v1::JobState_Name(job.state()), "SUCCEEDED") << job.message();
    for (const auto& ps : ps_) EXPECT_EQ(ps->based_ > 0, !out_of_step);
  }
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

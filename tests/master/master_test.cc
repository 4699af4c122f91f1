#include "master/master.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/row_file_writer.h"
#include "common/cluster/node.h"
#include "common/partition.h"
#include "common/rpc/status.h"
#include "common/window.h"
#include "tessera/v1/job_service.grpc.pb.h"
#include "tessera/v1/metrics.grpc.pb.h"
#include "tessera/v1/parameter_service.grpc.pb.h"
#include "tessera/v1/work.grpc.pb.h"
#include "tests/master/core_harness.h"

namespace tessera::master {
namespace {

using testing::Contains;
using testing::HasSubstr;

// A ps that keeps no rows: answers the master, and writes one row for each table.
class FakePs final : public v1::ParameterService::Service {
 public:
  FakePs(std::string name, InProcessChannels* channels, std::string root)
      : name_(std::move(name)), root_(std::move(root)) {
    ServerOptions server;
    server.listen = name_;
    server.in_process = channels;
    server_ = *RpcServer::Start(server, {this});
    ClusterNode::Options node;
    node.master_address = "master";
    node.hello.set_kind(v1::PS);
    node.hello.set_name(name_);
    node.hello.set_address(name_);
    node.channels = channels;
    node.backoff = {absl::Milliseconds(5), absl::Milliseconds(50), 1};
    node_ = ClusterNode::Start(std::move(node), {});
  }
  ~FakePs() override { node_->Stop(); }

  grpc::Status OpenJob(grpc::ServerContext*, const v1::OpenJobRequest* request,
                       v1::OpenJobResponse*) override {
    absl::MutexLock lock(&mu_);
    opens_.push_back(*request);
    return grpc::Status::OK;
  }
  grpc::Status CloseJob(grpc::ServerContext*, const v1::CloseJobRequest*,
                        v1::CloseJobResponse*) override {
    return grpc::Status::OK;
  }
  grpc::Status WriteCheckpoint(grpc::ServerContext*, const v1::WriteCheckpointRequest* request,
                               v1::WriteCheckpointResponse* response) override {
    if (full_) return ToGrpc(absl::ResourceExhaustedError("no space left on device"));
    const std::string path = absl::StrCat(root_, "/", request->folder(), "/rows-", request->part());
    auto writer = RowFileWriter::Create(PosixFileSystem(), path, 4096, 3);
    if (!writer.ok()) return ToGrpc(writer.status());
    const std::vector<float> row(6, 1.5f);  // dim 4 and 2 slots
    absl::Status status =
        (*writer)->BeginBlock(TableIndex(0), PartitionOf(request->part(), 4096), 1, 6);
    if (status.ok()) status = (*writer)->AddRow(request->part(), 1, 1, row);
    if (status.ok()) status = (*writer)->EndBlock();
    auto file = (*writer)->Finish();
    if (!file.ok()) return ToGrpc(file.status());
    *response->add_files() = *file;
    for (const uint64_t rows : file->rows()) response->add_rows(rows);
    return ToGrpc(status);
  }
  std::vector<v1::OpenJobRequest> opens() {
    absl::MutexLock lock(&mu_);
    return opens_;
  }
  std::atomic<bool> full_ = false;

 private:
  const std::string name_;
  const std::string root_;
  absl::Mutex mu_;
  std::vector<v1::OpenJobRequest> opens_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<ClusterNode> node_;
};

// A worker that trains nothing: counts, waits a little for each unit, and scores by the record's
// number, so that the AUC is known.
class FakeWorker {
 public:
  FakeWorker(std::string name, InProcessChannels* channels) : channels_(channels) {
    ClusterNode::Options node;
    node.master_address = "master";
    node.hello.set_kind(v1::WORKER);
    node.hello.set_name(name);
    node.channels = channels;
    node.backoff = {absl::Milliseconds(5), absl::Milliseconds(50), 1};
    ClusterNode::Callbacks callbacks;
    callbacks.welcome = [this](const v1::Welcome& welcome) {
      absl::MutexLock lock(&mu_);
      incarnation_ = welcome.incarnation();
    };
    callbacks.assignment = [this](const v1::Assignment& assignment) {
      absl::MutexLock lock(&mu_);
      assignment_ = assignment;
    };
    callbacks.lost = [this](const absl::Status&) {
      absl::MutexLock lock(&mu_);
      assignment_.Clear();
    };
    node_ = ClusterNode::Start(std::move(node), std::move(callbacks));
    thread_ = std::thread([this] { Run(); });
  }
  ~FakeWorker() {
    node_->Stop();
    {
      absl::MutexLock lock(&mu_);
      stop_ = true;
    }
    thread_.join();
  }

 private:
  void Run() {
    std::string under_way;
    uint64_t completed = 0;
    v1::UnitResult result;
    while (true) {
      v1::NextWorkRequest request;
      {
        absl::MutexLock lock(&mu_);
        const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
          return stop_ || !assignment_.job_id().empty();
        };
        mu_.Await(absl::Condition(&ready));
        if (stop_) return;
        request.set_job_id(assignment_.job_id());
        request.set_generation(assignment_.generation());
        request.set_rank(assignment_.rank());
        request.set_incarnation(incarnation_);
      }
      const std::string key = absl::StrCat(request.job_id(), ":", request.generation());
      if (key != under_way) {
        under_way = key;
        completed = 0;
        result.Clear();
      }
      request.set_completed_unit(completed);
      *request.mutable_result() = result;
      request.set_wait_ms(200);
      auto stub = v1::WorkService::NewStub(channels_->Connect("master"));
      grpc::ClientContext context;
      v1::NextWorkResponse unit;
      if (!stub->NextWork(&context, request, &unit).ok()) {
        absl::SleepFor(absl::Milliseconds(5));
        continue;
      }
      if (unit.unit_id() == 0) continue;
      result = Do(*stub, request, unit);
      completed = unit.unit_id();
    }
  }

  v1::UnitResult Do(v1::WorkService::Stub& stub, const v1::NextWorkRequest& request,
                    const v1::NextWorkResponse& unit) {
    v1::UnitResult result;
    if (unit.has_count()) {
      v1::FileRecords* file = result.add_files();
      file->set_path(unit.count().patterns(0));
      file->set_records(1000);
    } else if (unit.has_train()) {
      result.set_samples(100 * (unit.train().batch_end() - unit.train().batch_begin()));
      result.set_train_seconds(0.005);
      absl::SleepFor(absl::Milliseconds(2));
    } else if (unit.has_evaluate()) {
      grpc::ClientContext context;
      v1::ReportScoresResponse response;
      auto stream = stub.ReportScores(&context, &response);
      for (const v1::RecordRange& range : unit.evaluate().ranges()) {
        for (uint64_t begin = range.begin(); begin < range.end(); begin += 64) {
          v1::ScoresChunk chunk;
          chunk.set_job_id(request.job_id());
          chunk.set_generation(request.generation());
          chunk.set_rank(request.rank());
          chunk.set_evaluation_id(unit.evaluate().evaluation_id());
          chunk.set_unit_id(unit.unit_id());
          for (uint64_t i = begin; i < std::min(begin + 64, range.end()); ++i) {
            // Every third record is ranked wrongly against all others.
            const float label = static_cast<float>(i % 2);
            const float logit = i % 4 == 3 ? -1.0f : label;
            chunk.mutable_labels()->append(reinterpret_cast<const char*>(&label), 4);
            chunk.mutable_logits()->append(reinterpret_cast<const char*>(&logit), 4);
            result.set_samples(result.samples() + 1);
          }
          stream->Write(chunk);
        }
      }
      stream->WritesDone();
      const grpc::Status status = stream->Finish();
      result.set_code(status.error_code());
      result.set_message(status.error_message());
    }
    return result;
  }

  InProcessChannels* const channels_;
  absl::Mutex mu_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t incarnation_ ABSL_GUARDED_BY(mu_) = 0;
  v1::Assignment assignment_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<ClusterNode> node_;
  std::thread thread_;
};

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

TEST_F(MasterTest, AfterTheLossOfAWorkerTheJobGoesOnFromItsCheckpoint) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_train()->set_epochs(200);
  spec.mutable_evaluation()->set_every_epochs(1000);
  spec.mutable_checkpoint()->set_every_steps(50);
  StartNodes(1, 2);
  const std::string id = Submit(spec, 2, 1);
  Watch(id, [](const v1::JobStatus& job) { return !job.checkpoint().empty(); });
  workers_.pop_back();
  Watch(id, [](const v1::JobStatus& job) { return job.state() == v1::RESTARTING; });
  workers_.push_back(std::make_unique<FakeWorker>("replacement", &channels_));
  const v1::JobStatus job = Watch(id).back();
  EXPECT_EQ(v1::JobState_Name(job.state()), "SUCCEEDED") << job.message();
  EXPECT_EQ(job.restarts(), 1u);
  EXPECT_EQ(job.step(), 2000u);
  EXPECT_FALSE(ps_[0]->opens().back().checkpoint().empty());
  // The newest three are kept.
  EXPECT_EQ(ListCheckpoints(PosixFileSystem(), folder_ + "/checkpoints/" + id)->size(), 3u);
}

TEST_F(MasterTest, PrintsWhatItKnowsOfJobsProcessesAndUnits) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_train()->set_epochs(200);
  spec.mutable_evaluation()->set_every_epochs(1000);
  spec.mutable_checkpoint()->set_every_steps(50);
  StartNodes(1, 2);
  const std::string id = Submit(spec, 2, 1);
  Watch(id, [](const v1::JobStatus& job) { return !job.checkpoint().empty(); });
  workers_.pop_back();
  Watch(id, [](const v1::JobStatus& job) { return job.state() == v1::RESTARTING; });
  workers_.push_back(std::make_unique<FakeWorker>("replacement", &channels_));
  ASSERT_EQ(v1::JobState_Name(Watch(id).back().state()), "SUCCEEDED");

  const auto stub = v1::MetricsService::NewStub(channels_.Connect("master"));
  grpc::ClientContext context;
  v1::GetMetricsResponse response;
  ASSERT_TRUE(stub->GetMetrics(&context, {}, &response).ok());
  const auto value = [&](const std::string& name) -> double {
    for (const absl::string_view line : absl::StrSplit(response.text(), '\n')) {
      double number = 0;
      if (absl::StartsWith(line, name + " ") &&
          absl::SimpleAtod(line.substr(name.size() + 1), &number)) {
        return number;
      }
    }
    ADD_FAILURE() << "no " << name << " in " << response.text();
    return -1;
  };
  EXPECT_EQ(value("tessera_master_jobs{state=\"succeeded\"}"), 1);
  EXPECT_EQ(value("tessera_master_jobs{state=\"running\"}"), 0);
  EXPECT_EQ(value("tessera_master_live_nodes{kind=\"ps\"}"), 1);
  EXPECT_EQ(value("tessera_master_live_nodes{kind=\"worker\"}"), 2);
  EXPECT_EQ(value("tessera_master_job_restarts_total"), 1);
  EXPECT_EQ(value("tessera_master_checkpoints_failed_total"), 0);
  // Of 2000 steps one in 50. One that was committed while the worker was lost may not be counted.
  EXPECT_GE(value("tessera_master_checkpoints_committed_total"), 39);
  // A unit that a lost worker held is handed out again, and done once.
  EXPECT_GT(value("tessera_master_units_done_total"), 0);
  EXPECT_LE(value("tessera_master_units_done_total"),
            value("tessera_master_units_handed_out_total"));
  EXPECT_THAT(response.text(), HasSubstr("tessera_build_info{process=\"master\""));
}

TEST_F(MasterTest, AMasterThatIsStartedAgainTakesUpTheRunningJob) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_train()->set_epochs(100);
  spec.mutable_evaluation()->set_every_epochs(1000);
  spec.mutable_checkpoint()->set_every_steps(100);
  StartNodes(1, 2);
  const std::string id = Submit(spec, 2, 1);
  Watch(id, [](const v1::JobStatus& job) { return !job.checkpoint().empty(); });
  master_.reset();
  StartMaster();
  const v1::JobStatus job = Watch(id).back();
  EXPECT_EQ(v1::JobState_Name(job.state()), "SUCCEEDED") << job.message();
  EXPECT_EQ(job.restarts(), 1u);
  EXPECT_GE(job.generation(), 2u);
  EXPECT_GE(ps_[0]->opens().back().first_step(), 100u);
  // A master that stops has lost nobody.
  for (const v1::Event& event : job.events()) {
    EXPECT_THAT(event.message(), testing::Not(HasSubstr("lost (")));
  }
}

TEST_F(MasterTest, AFreshDataFolderGivesNoNumberThatHasAFolderOfCheckpoints) {
  StartNodes(1, 1);
  const std::string first = Watch(Submit(SmallJob(), 1, 1)).back().job_id();
  ASSERT_EQ(first, "demo-1");
  std::filesystem::create_directories(folder_ + "/checkpoints/another-job-41");
  std::filesystem::create_directories(folder_ + "/checkpoints/notes-99999999999999999999");
  master_.reset();
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
  const std::string first = Submit(spec, 1, 1);
  spec.mutable_start()->set_checkpoint("./" + first + "/step-000000000100/");
  const std::string second = Submit(spec, 1, 1);
  const v1::JobStatus job = Watch(second).back();
  EXPECT_EQ(v1::JobState_Name(job.state()), "SUCCEEDED") << job.message();
  EXPECT_EQ(Get(first).step(), 1000u);
}

TEST_F(MasterTest, AFullDiskAtTheLastCheckpointFailsTheJobAndLeavesNoFolder) {
  StartNodes(2, 1);
  ps_[1]->full_ = true;
  const v1::JobStatus job = Watch(Submit(SmallJob(), 1, 2)).back();
  EXPECT_EQ(job.state(), v1::FAILED);
  EXPECT_EQ(job.reason(), "CheckpointFailed");
  EXPECT_THAT(job.message(), HasSubstr("write the checkpoint on ps-1: no space left on device"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/checkpoints/" + job.job_id()));
}

TEST_F(MasterTest, ASecondMasterOnTheSameDataFolderIsRefused) {
  Master::Options options = Options();
  options.server.listen = "other";
  const auto second = Master::Start(options);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("in use by another process"));
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
  Watch(id, [](const v1::JobStatus& job) {
    return job.reason() == "WaitingForWorkers" &&
           job.message().find("1 of 2 workers") != std::string::npos;
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

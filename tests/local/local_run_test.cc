#include "local/local_run.h"

#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "client/data_generator.h"
#include "common/checkpoint/digest.h"
#include "common/config/override.h"
#include "common/config/yaml_job.h"
#include "common/file_system.h"
#include "common/job/metric_names.h"
#include "common/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/paths.h"

// Whole jobs on whole clusters, on little data.
namespace tessera::local {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;
namespace fs = std::filesystem;

constexpr char kJobToRun[] = R"(name: tiny
seed: 1
data:
  format: csv
  header: true
  columns:
    - {name: label, role: label}
    - {name: d0, role: dense}
    - {name: d1, role: dense}
    - {name: c0, role: sparse, table: [linear, embedding]}
    - {name: c1, role: sparse, table: [linear, embedding]}
    - {name: c2, role: sparse, table: [linear, embedding]}
  train: {files: train.csv}
  validation: {files: validation.csv}
  test: {files: test.csv}
tables:
  - name: linear
    dim: 1
    initializer: {constant: {value: 0}}
    optimizer: {learning_rate: 0.01, adam: {}}
  - name: embedding
    dim: 4
    initializer: {normal: {stddev: 0.01}}
    optimizer: {learning_rate: 0.01, adam: {}}
model:
  name: deepfm
  options: {hidden: [8]}
  optimizer: {learning_rate: 0.01, adam: {}}
train: {batch_size: 100, epochs: 2}
)";

class LocalRunTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) /
              (std::string("run-") + testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    client::ClickDataOptions data;
    data.folder = folder_ / "data";
    data.train = 2000;
    data.validation = 500;
    data.test = 300;
    const auto splits =
        client::GenerateClickData(data, PosixFileSystem(), [](uint64_t, uint64_t) {});
    ASSERT_TRUE(splits.ok()) << splits.status();
  }
  void TearDown() override { fs::remove_all(folder_); }

  LocalRun::Options Options(const std::string& work, bool in_process) {
    LocalRun::Options options;
    ClusterOptions& cluster = options.cluster;
    cluster.work_folder = folder_ / work;
    fs::create_directories(cluster.work_folder);
    cluster.data_root = folder_ / "data";
    cluster.checkpoint_root = folder_ / work / "checkpoints";
    cluster.output_root = folder_;
    cluster.ps = 2;
    cluster.workers = 2;
    cluster.program_folder = ProgramFolder();
    cluster.say = [this](const std::string& text) {
      absl::MutexLock lock(&mu_);
      said_.push_back(text);
    };
    options.in_process = in_process;
    absl::StatusOr<LoadedJob> job = ParseJobYaml(kJobToRun, "tiny.yaml");
    EXPECT_TRUE(job.ok()) << job.status();
    *options.request.mutable_spec() = job->spec;
    options.request.set_workers(2);
    options.request.set_ps(2);
    options.on_status = [](const v1::JobStatus&) {};
    return options;
  }
  std::vector<std::string> said() {
    absl::MutexLock lock(&mu_);
    return said_;
  }

  // The pids of our children whose command line holds `word`.
  static std::vector<pid_t> Children(const std::string& word) {
    std::vector<pid_t> pids;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (!std::all_of(name.begin(), name.end(), ::isdigit)) continue;
      std::ifstream stat(entry.path() / "stat"), command(entry.path() / "cmdline");
      std::string text((std::istreambuf_iterator<char>(stat)), {});
      const size_t close = text.rfind(") ");
      if (close == std::string::npos) continue;
      const pid_t parent = std::atoi(text.c_str() + close + 4);
      std::string line((std::istreambuf_iterator<char>(command)), {});
      if (parent == getpid() && line.find(word) != std::string::npos) {
        pids.push_back(std::atoi(name.c_str()));
      }
    }
    return pids;
  }

  fs::path folder_;
  absl::Mutex mu_;
  std::vector<std::string> said_ ABSL_GUARDED_BY(mu_);
};

TEST_F(LocalRunTest, TrainsOnSeparateProcessesAndInThisOneToTheSameModel) {
  std::vector<std::string> digests;
  for (const bool in_process : {false, true}) {
    LocalRun run(Options(in_process ? "in" : "out", in_process));
    const auto status = run.Run();
    ASSERT_TRUE(status.ok()) << status.status();
    ASSERT_EQ(status->state(), v1::SUCCEEDED) << status->message();
    EXPECT_EQ(status->step(), 40u);
    EXPECT_EQ(status->epoch(), 2u);
    EXPECT_GT(status->final_metrics().at("test").metrics().at("auc"), 0.5);
    EXPECT_TRUE(fs::path(status->checkpoint()).is_absolute());
    const auto digest = DigestCheckpoint(PosixFileSystem(), status->checkpoint());
    ASSERT_TRUE(digest.ok()) << digest.status();
    digests.push_back(*digest);
  }
  EXPECT_EQ(digests[0], digests[1]);
  EXPECT_TRUE(Children("tessera-").empty());
}

TEST_F(LocalRunTest, TrainsThroughSharedMemoryAndThroughTheNetworkToTheSameModel) {
  std::vector<std::string> digests;
  for (const bool share_memory : {false, true}) {
    const std::string work = share_memory ? "shared" : "network";
    LocalRun::Options options = Options(work, /*in_process=*/false);
    options.cluster.share_memory = share_memory;
    // Sync, and with a log of what is pushed. Large enough rows to be worth sharing.
    v1::JobSpec& spec = *options.request.mutable_spec();
    spec.mutable_tables(1)->set_dim(64);
    spec.mutable_recovery()->set_push_log(v1::RecoverySpec::ASYNC);
    const auto status = LocalRun(std::move(options)).Run();
    ASSERT_TRUE(status.ok()) << status.status();
    ASSERT_EQ(status->state(), v1::SUCCEEDED) << status->message();
    const auto digest = DigestCheckpoint(PosixFileSystem(), status->checkpoint());
    ASSERT_TRUE(digest.ok()) << digest.status();
    digests.push_back(*digest);
    for (const char* worker : {"worker-0", "worker-1"}) {
      std::ifstream log(folder_ / work / "logs" / (std::string(worker) + ".log"));
      const std::string text((std::istreambuf_iterator<char>(log)), {});
      EXPECT_EQ(text.find("bytes of memory with it") != std::string::npos, share_memory) << text;
    }
  }
  EXPECT_EQ(digests[0], digests[1]);
}

TEST_F(LocalRunTest, MeasuresEveryMetricThatTheJobNames) {
  LocalRun::Options options = Options("metrics", true);
  v1::EvaluationSpec& evaluation = *options.request.mutable_spec()->mutable_evaluation();
  for (const math::MetricInfo& metric : math::AllMetrics()) {
    if (metric.IsOf(math::Outputs::kLogits)) evaluation.add_metrics(metric.name);
  }
  const auto named = static_cast<size_t>(evaluation.metrics_size());
  evaluation.set_group_by("c0");
  evaluation.set_monitor("normalized_entropy");
  options.request.mutable_spec()->mutable_checkpoint()->set_keep_best(true);
  LocalRun run(std::move(options));
  const auto status = run.Run();
  ASSERT_TRUE(status.ok()) << status.status();
  ASSERT_EQ(status->state(), v1::SUCCEEDED) << status->message();
  const auto& metrics = status->final_metrics().at("test").metrics();
  EXPECT_EQ(metrics.size(), named);
  for (const auto& [name, value] : metrics) EXPECT_GT(value, 0) << name;
  EXPECT_DOUBLE_EQ(metrics.at("rmse") * metrics.at("rmse"), metrics.at("mse"));
  EXPECT_NE(metrics.at("gauc"), metrics.at("auc"));
  EXPECT_NEAR(metrics.at("binned_auc"), metrics.at("auc"), 1e-4);
  EXPECT_LT(metrics.at("gauc"), 1);
  // The best evaluation is the one of the smallest normalised entropy.
  double best = 1e9, smallest = 1e9;
  for (const v1::Evaluation& measured : status->evaluations()) {
    const double entropy = measured.metrics().at("normalized_entropy");
    smallest = std::min(smallest, entropy);
    if (measured.best()) best = entropy;
  }
  EXPECT_EQ(best, smallest);
}

// With auc the master keeps all scores; without it, it adds up those of a unit and forgets them.
TEST_F(LocalRunTest, MeasuresTheSameWhetherItKeepsScoresOrNot) {
  std::vector<std::map<std::string, double>> measured;
  for (const bool kept : {true, false}) {
    LocalRun::Options options = Options(kept ? "kept" : "folded", true);
    v1::JobSpec& spec = *options.request.mutable_spec();
    for (const std::string& metric : MetricsInParts(spec)) {
      spec.mutable_evaluation()->add_metrics(metric);
    }
    if (kept) spec.mutable_evaluation()->add_metrics("auc");
    spec.mutable_evaluation()->set_monitor("binned_auc");
    LocalRun run(std::move(options));
    const auto status = run.Run();
    ASSERT_TRUE(status.ok()) << status.status();
    ASSERT_EQ(status->state(), v1::SUCCEEDED) << status->message();
    const v1::Evaluation& test = status->final_metrics().at("test");
    measured.emplace_back(test.metrics().begin(), test.metrics().end());
    measured.back().erase("auc");
  }
  EXPECT_FALSE(measured[0].empty());
  EXPECT_EQ(measured[0], measured[1]);
}

TEST_F(LocalRunTest, ARegressionLearnsItsValues) {
  // label = 3 d0 - 2 d1 + 5, of deviation 3.6.
  for (const auto& [name, records] :
       {std::pair("train.csv", 4000), std::pair("validation.csv", 500),
        std::pair("test.csv", 500)}) {
    std::ofstream csv(folder_ / "data" / name);
    csv << "label,d0,d1,c0,c1,c2\n";
    for (int i = 0; i < records; ++i) {
      const uint64_t key = StreamKey(RandomFor::kInitialDense, records, i);
      const double d0 = RandomNormal(key, 0), d1 = RandomNormal(key, 1);
      csv << 3 * d0 - 2 * d1 + 5 << "," << d0 << "," << d1 << ",1,2,3\n";
    }
  }
  for (const v1::Loss loss : {v1::MEAN_SQUARED_ERROR, v1::HUBER}) {
    LocalRun::Options options = Options(v1::Loss_Name(loss), true);
    v1::JobSpec& spec = *options.request.mutable_spec();
    spec.mutable_model()->set_loss(loss);
    spec.mutable_train()->set_epochs(20);
    spec.mutable_train()->mutable_schedule()->set_decay(v1::COSINE);
    spec.mutable_train()->mutable_schedule()->set_decay_steps(800);
    LocalRun run(std::move(options));
    const auto status = run.Run();
    ASSERT_TRUE(status.ok()) << status.status();
    ASSERT_EQ(status->state(), v1::SUCCEEDED) << status->message();
    const auto& metrics = status->final_metrics().at("test").metrics();
    EXPECT_EQ(metrics.size(), 2u);
    EXPECT_LT(metrics.at("rmse"), 0.36) << v1::Loss_Name(loss);  // 99% of the variance
    EXPECT_LE(metrics.at("mae"), metrics.at("rmse"));
  }
}

TEST_F(LocalRunTest, StartsAKilledWorkerAgainAndGoesOn) {
  LocalRun::Options options = Options("killed", false);
  options.request.mutable_spec()->mutable_train()->set_epochs(60);
  bool killed = false;
  options.on_status = [&](const v1::JobStatus& status) {
    if (killed || status.step() == 0) return;
    for (const pid_t pid : Children("worker-1")) {
      killed = true;
      kill(pid, SIGKILL);
    }
  };
  LocalRun run(options);
  const auto status = run.Run();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->state(), v1::SUCCEEDED) << status->message();
  EXPECT_TRUE(killed);
  EXPECT_THAT(said(), testing::Contains(testing::AllOf(HasSubstr("worker-1 (pid "),
                                                       HasSubstr("was killed by signal 9"),
                                                       HasSubstr("starting it again"))));
}

TEST_F(LocalRunTest, TriesAgainToStartAProcessThatCannotBeStartedNow) {
  LocalRun::Options options = Options("no-logs", false);
  options.request.mutable_spec()->mutable_train()->set_epochs(60);
  const std::string logs = options.cluster.work_folder + "/logs";
  std::atomic<bool> killed = false;
  options.on_status = [&](const v1::JobStatus& status) {
    if (killed || status.step() == 0) return;
    fs::rename(logs, logs + "-away");
    for (const pid_t pid : Children("worker-1")) {
      killed = true;
      kill(pid, SIGKILL);
    }
  };
  const auto could_not =
      Contains(AllOf(HasSubstr("worker-1: cannot open the log"), HasSubstr("starting it again")));
  std::thread mends([&] {
    for (int i = 0; i < 3000 && !testing::Value(said(), could_not); ++i) {
      absl::SleepFor(absl::Milliseconds(10));
    }
    if (killed) fs::rename(logs + "-away", logs);
  });
  LocalRun run(options);
  const auto status = run.Run();
  mends.join();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->state(), v1::SUCCEEDED) << status->message();
  EXPECT_THAT(said(), could_not);
}

TEST_F(LocalRunTest, CancelEndsTheJobAndTheCluster) {
  LocalRun::Options options = Options("cancel", true);
  options.request.mutable_spec()->mutable_train()->set_epochs(100000);
  LocalRun* running = nullptr;
  options.on_status = [&](const v1::JobStatus& status) {
    if (status.step() > 0) running->Cancel();
  };
  LocalRun run(options);
  running = &run;
  const auto status = run.Run();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->state(), v1::FAILED);
  EXPECT_EQ(status->reason(), "Cancelled");
  EXPECT_TRUE(run.cancelled());
}

TEST_F(LocalRunTest, ResumesTheUnfinishedJobOfItsFolder) {
  // A run that is cut off in the middle: the cluster stops, the job does not end.
  {
    LocalRun::Options options = Options("resume", true);
    auto cluster = StartInProcessCluster(options.cluster);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    client::JobClient::Options client;
    client.master_address = (*cluster)->master_address();
    client.channels = &(*cluster)->channels();
    ASSERT_TRUE(client::JobClient(client).Submit(options.request).ok());
  }
  LocalRun again(Options("resume", true));
  const absl::Status refused = again.Run().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("holds the unfinished job tiny-1"));

  LocalRun::Options options = Options("resume", true);
  options.resume = true;
  options.request.mutable_spec()->mutable_start()->set_checkpoint("start");
  options.request.mutable_spec()->mutable_train()->set_epochs(77);
  std::vector<std::string> said;
  options.cluster.say = [&said](const std::string& text) { said.push_back(text); };
  LocalRun run(options);
  const auto status = run.Run();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->state(), v1::SUCCEEDED) << status->message();
  EXPECT_EQ(status->job_id(), "tiny-1");
  EXPECT_EQ(status->step(), 40u);
  EXPECT_THAT(said,
              Contains(AllOf(StartsWith("warning: tiny-1 goes on as it was submitted; what is "
                                        "given otherwise now does not count: modified: "
                                        "train.epochs: "),
                             EndsWith(" -> 77"))));
  LocalRun nothing(options);
  EXPECT_EQ(nothing.Run().status().code(), absl::StatusCode::kNotFound);
}

TEST_F(LocalRunTest, AProcessThatMayNotBeTriedAgainEndsTheRun) {
  LocalRun::Options options = Options("broken", false);
  // Another process, this one, holds the folder of a worker.
  const auto lock = FolderLock::Take(options.cluster.work_folder + "/worker-0");
  ASSERT_TRUE(lock.ok()) << lock.status();
  const absl::Status status = LocalRun(options).Run().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("worker-0 (pid "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("exited with code 1"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(".log ends:"));
}

TEST_F(LocalRunTest, NamesTheProgramThatIsMissing) {
  LocalRun::Options options = Options("missing", false);
  options.cluster.program_folder = folder_;
  const absl::Status status = LocalRun(options).Run().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tessera-master is missing"));
}

TEST_F(LocalRunTest, AJobThatFailsSaysWhy) {
  LocalRun::Options options = Options("fails", true);
  options.request.mutable_spec()->mutable_data()->mutable_train()->set_files(0, "none.csv");
  const auto status = LocalRun(options).Run();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->state(), v1::FAILED);
  EXPECT_THAT(status->message(), HasSubstr("none.csv"));
}

}  // namespace
}  // namespace tessera::local

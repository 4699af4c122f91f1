// A worker that is lost between its pushes to two ps, and the one that takes over its rank; and
// what an idle worker keeps.
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/row_file_reader.h"
#include "tests/cluster/takeover_testing.h"
#include "tests/worker/data_testing.h"

namespace tessera {
namespace {

TEST_F(TakeoverTest, AWorkerThatIsLostBetweenTwoPsCostsNoBitAndNoRollback) {
  const v1::JobSpec spec = Job({"consistency.sparse=sync", "consistency.dense=sync",
                                "train.early_stopping.patience=0", "checkpoint.keep_best=false"});
  const std::string undisturbed = Digest(Run("undisturbed", spec, {.ps = 2}));
  for (const std::vector<bool>& through :
       std::vector<std::vector<bool>>{{true, false}, {false, true}, {true, true}, {false, false}}) {
    const std::string name = absl::StrCat("through-", through[0], through[1]);
    SCOPED_TRACE(name);
    const v1::JobStatus status = RunWithALoss(name, spec, through);
    EXPECT_EQ(Digest(status), undisturbed);
    EXPECT_EQ(status.restarts(), 0u);
    EXPECT_EQ(status.generation(), 1u);
    EXPECT_EQ(status.samples(), 2u * 12000);
    EXPECT_EQ(status.nodes(3).name(), "worker-2");
    // A worker that is stopped says so: nobody waits for its lease.
    bool left = false;
    for (const v1::Event& event : status.events()) {
      left = left || event.message() == "worker-1 lost (it left)" ||
             event.message() == "worker-1 lost (its connection broke)";
    }
    EXPECT_TRUE(left) << status.ShortDebugString();
  }
}

// Of every row, the number of pushes that it was in: who makes up a batch depends on nothing but
// the job, so a push that was lost, or counted twice, shows.
std::map<std::pair<uint32_t, uint64_t>, uint32_t> Frequencies(const v1::JobStatus& status) {
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> frequencies;
  const auto manifest = VerifyCheckpoint(PosixFileSystem(), status.checkpoint());
  EXPECT_TRUE(manifest.ok()) << manifest.status();
  for (const v1::CheckpointFile& file : manifest->files()) {
    const auto reader =
        RowFileReader::Open(PosixFileSystem(), absl::StrCat(status.checkpoint(), "/", file.name()));
    EXPECT_TRUE(reader.ok()) << reader.status();
    for (const row_file::IndexEntry& entry : (*reader)->blocks()) {
      const auto block = (*reader)->Read(entry);
      EXPECT_TRUE(block.ok()) << block.status();
      for (uint64_t i = 0; i < block->rows(); ++i) {
        EXPECT_TRUE(
            frequencies.emplace(std::pair(entry.table, block->key(i)), block->frequency(i)).second);
      }
    }
  }
  return frequencies;
}

TEST_F(TakeoverTest, InEveryMixOfModesEverySampleCountsOnce) {
  for (const char* sparse : {"sync", "async"}) {
    for (const char* dense : {"sync", "async"}) {
      const std::string name = absl::StrCat(sparse, "-", dense);
      SCOPED_TRACE(name);
      const v1::JobSpec spec = Job(
          {absl::StrCat("consistency.sparse=", sparse), absl::StrCat("consistency.dense=", dense),
           "train.epochs=3", "train.early_stopping.patience=0", "checkpoint.keep_best=false"});
      const auto expected = Frequencies(Run(name + "-undisturbed", spec, {.ps = 2}));
      EXPECT_GT(expected.size(), 1000u);
      const v1::JobStatus status = RunWithALoss(name, spec, {true, false});
      EXPECT_EQ(status.state(), v1::SUCCEEDED) << status.message();
      EXPECT_EQ(status.restarts(), 0u);
      EXPECT_EQ(status.samples(), 3u * 12000);
      EXPECT_TRUE(Frequencies(status) == expected);
    }
  }
}

// How many files below a folder this process has open that have no name any more.
int UnnamedFiles(const std::string& folder) {
  const std::string below = std::filesystem::canonical(folder).string();
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed_since;
    const std::string path = std::filesystem::read_symlink(entry.path(), closed_since).string();
    count += absl::StartsWith(path, below) && absl::EndsWith(path, " (deleted)") ? 1 : 0;
  }
  return count;
}

TEST_F(TakeoverTest, AnIdleWorkerKeepsNoDataOfAJobThatWasCancelled) {
  WorkerlessCluster cluster(RunFolder("cancelled"));
  const std::string data = PathOf("cancelled") + "/data";
  std::filesystem::copy(*data_folder_, data);
  std::stringstream train;
  train << std::ifstream(data + "/train.csv").rdbuf();
  std::ofstream(data + "/train.csv.gz") << worker::Gzip(train.str());
  worker::Worker::Options options;
  options.name = "worker-0";
  options.data_root = data;
  options.scratch_folder = PathOf("cancelled") + "/scratch";
  std::filesystem::create_directories(options.scratch_folder);
  options.keep_data_for = absl::Milliseconds(100);
  const auto worker = cluster.StartWorker(options);
  const std::string id = cluster.Submit(Job({"data.train.files=train.csv.gz", "train.epochs=10000",
                                             "train.early_stopping.patience=0"}),
                                        1);
  const absl::Time limit = absl::Now() + absl::Seconds(60);
  const auto unpacked = [&options] { return UnnamedFiles(options.scratch_folder); };
  while (unpacked() == 0 && absl::Now() < limit) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_GT(unpacked(), 0);
  v1::CancelRequest request;
  request.set_job_id(id);
  v1::CancelResponse response;
  grpc::ClientContext context;
  EXPECT_TRUE(cluster.Jobs()->Cancel(&context, request, &response).ok());
  EXPECT_EQ(cluster.Await(id).reason(), "Cancelled");
  while (unpacked() > 0 && absl::Now() < limit) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_EQ(unpacked(), 0);
  worker->Leave();
  worker->Stop();
}

}  // namespace
}  // namespace tessera

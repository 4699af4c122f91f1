// A worker that is lost between its pushes to two ps, and the one that takes over its rank.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/checkpoint/manifest.h"
#include "common/checkpoint/row_file_reader.h"
#include "tests/cluster/takeover_testing.h"

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

}  // namespace
}  // namespace tessera

// Rows that change their owner while most of them are on disk.
#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "ps/tables/spill.h"
#include "tests/ps/partition_move_testing.h"

namespace tessera::ps {
namespace {

class SpilledMoveTest : public PartitionMoveTest {
 protected:
  static constexpr uint64_t kKeys = 40000;
  static constexpr uint64_t kMemory = 1 << 20;  // of some 4 MiB of rows

  SpilledMoveTest()
      : folder_(absl::StrCat(testing::TempDir(), "/move-", ::getpid(), "-",
                             testing::UnitTest::GetInstance()->current_test_info()->name())) {
    for (int i = 0; i < 2; ++i) {
      Spill::Options options;
      options.folder = absl::StrCat(folder_, "/", i);
      options.memory_bytes = kMemory;
      options.reader_threads = 4;
      auto spill = Spill::Open(options);
      EXPECT_OK(spill);
      spill_.push_back(*std::move(spill));
      ps_.push_back(std::make_unique<Jobs>(JobShard::Options{
          .clock = &clock_, .files = &files_, .checkpoint_root = "root", .spill = &*spill_[i]}));
    }
  }
  ~SpilledMoveTest() override {
    ps_.clear();
    spill_.clear();
    std::filesystem::remove_all(folder_);
  }

  // What the step has of the shard's partitions: the same keys and gradients, however they are
  // shared out.
  static void PushStep(JobShard& shard, uint64_t step) {
    std::mt19937_64 random(step);
    std::set<uint64_t> keys;
    for (int i = 0; i < 4000; ++i) {
      const uint64_t key = random() % kKeys;
      if (shard.Owns(PartitionOf(key, kMovePartitions).value())) keys.insert(key);
    }
    Block block = {0, {keys.begin(), keys.end()}, {}};
    for (const uint64_t key : keys) {
      for (uint64_t d = 0; d < 3; ++d) {
        block.values.push_back(static_cast<float>(MixPair(key, 3 * step + d) % 100) / 50 - 1);
      }
    }
    v1::PushRequest push = PushOf(0, step, {block});
    push.mutable_header()->set_generation(shard.request().generation());
    ASSERT_OK(PushAll(shard, push));
  }
  // On the ps that are to be moved, and on one that has all rows in memory.
  void Train(uint64_t generation, uint64_t step) {
    for (const auto& ps : ps_) {
      const auto shard = ps->Find("job-1", generation);
      if (shard.ok()) PushStep(**shard, step);
    }
    PushStep(*Find(old_, 1), step);
  }

  // Copies, with a step between the rounds, and switches. [ps][] of partitions.
  void Move(uint64_t generation, uint64_t& step, const std::vector<uint32_t> (&to)[2]) {
    std::shared_ptr<JobShard> before[2];
    for (int i = 0; i < 2; ++i) {
      auto shard = ps_[i]->Find("job-1", generation);
      if (shard.ok()) before[i] = *shard;
    }
    std::vector<uint32_t> moving[2];  // to which ps
    std::shared_ptr<JobShard> staged[2];
    for (int i = 0; i < 2; ++i) {
      for (const uint32_t p : to[i]) {
        if (before[i] == nullptr || !before[i]->Owns(p)) moving[i].push_back(p);
      }
      if (moving[i].empty()) continue;
      auto stage = ps_[i]->Stage(TakeOver(generation, to[i]), /*changed=*/false);
      ASSERT_OK(stage);
      staged[i] = *stage;
    }
    for (int round = 0; round < 4; ++round) {
      // Rows leave, and come back to change once more.
      for (int i = 0; i < round; ++i) Train(generation, step++);
      for (int i = 0; i < 2; ++i) {
        if (staged[i] == nullptr) continue;
        ASSERT_OK(Copy(*before[1 - i], *staged[i], moving[i], /*changed=*/round > 0));
      }
    }
    for (int i = 0; i < 2; ++i) {
      if (to[i].empty()) {
        ASSERT_OK(ps_[i]->Close("job-1", generation));
      } else {
        ASSERT_OK(ps_[i]->Open(TakeOver(generation, to[i], step)));
        Find(*ps_[i], generation + 1)->FinishTakeOver();
      }
    }
  }

  const std::string folder_;
  std::vector<std::unique_ptr<Spill>> spill_;
  std::vector<std::unique_ptr<Jobs>> ps_;
};

TEST_F(SpilledMoveTest, RowsOnDiskMoveToAndFroWhileTheyChange) {
  ASSERT_OK(old_.Open(Request(1, Partitions(0, kMovePartitions))));
  const auto still = Find(old_, 1);
  ASSERT_OK(ps_[0]->Open(Request(1, Partitions(0, kMovePartitions))));
  uint64_t step = 0;
  while (step < 30) Train(1, step++);
  EXPECT_GT(Find(*ps_[0], 1)->Stats().tables(0).cold_rows(), kKeys / 4);
  // Others' partitions leave a ps, and come back with other rows than those it once had.
  const std::vector<uint32_t> splits[][2] = {
      {Partitions(0, 150), Partitions(150, kMovePartitions)},
      {Partitions(0, 40), Partitions(40, kMovePartitions)},
      {Partitions(100, kMovePartitions), Partitions(0, 100)},
      {{}, Partitions(0, kMovePartitions)},
      {Partitions(0, 70), Partitions(70, kMovePartitions)},
  };
  uint64_t generation = 1;
  for (const auto& split : splits) {
    Move(generation++, step, split);
    std::map<uint64_t, std::string> rows;
    uint64_t cold = 0;
    uint64_t count = 0;
    for (const auto& ps : ps_) {
      const auto shard = ps->Find("job-1", generation);
      if (!shard.ok()) continue;
      EXPECT_FALSE(*shard == nullptr);
      count += (*shard)->rows();
      cold += (*shard)->Stats().tables(0).cold_rows();
      rows.merge(Rows(**shard));
    }
    EXPECT_TRUE(rows == Rows(*still)) << "generation " << generation;
    EXPECT_EQ(count, rows.size());
    EXPECT_GT(cold, kKeys / 8);
  }
  EXPECT_LE(spill_[0]->budget().used(), 2 * kMemory);
  EXPECT_LE(spill_[1]->budget().used(), 2 * kMemory);
}

TEST_F(SpilledMoveTest, AMoveThatIsGivenUpLeavesNothingForTheNext) {
  ASSERT_OK(old_.Open(Request(1, Partitions(0, kMovePartitions))));
  const auto still = Find(old_, 1);
  const std::vector<uint32_t> first = Partitions(0, 100);
  const std::vector<uint32_t> second = Partitions(100, kMovePartitions);
  ASSERT_OK(ps_[0]->Open(Request(1, first)));
  ASSERT_OK(ps_[1]->Open(Request(1, second)));
  uint64_t step = 0;
  while (step < 30) Train(1, step++);
  // Rows come, some go to disk, and the move ends there.
  auto staged = *ps_[0]->Stage(TakeOver(1, Partitions(0, kMovePartitions)), /*changed=*/false);
  ASSERT_OK(Copy(*Find(*ps_[1], 1), *staged, second, /*changed=*/false));
  EXPECT_GT(staged->Stats().tables(0).evicted_rows(), 0u);
  ps_[0]->DropStaged("job-1", 2, 0);
  // Who still has it brings nothing more to disk.
  staged.reset();
  const std::vector<uint32_t> all[2] = {Partitions(0, kMovePartitions), {}};
  Move(1, step, all);
  EXPECT_TRUE(Rows(*Find(*ps_[0], 2)) == Rows(*still));
  EXPECT_EQ(Find(*ps_[0], 2)->rows(), still->rows());
}

// It does not know that the job has gone back to its start without it.
TEST_F(SpilledMoveTest, RowsOfAnEarlierGenerationOnDiskAreNotFoundAmongThoseThatCome) {
  const std::vector<uint32_t> all = Partitions(0, kMovePartitions);
  ASSERT_OK(ps_[1]->Open(Request(1, all)));
  for (uint64_t step = 0; step < 30; ++step) PushStep(*Find(*ps_[1], 1), step);
  EXPECT_GT(Find(*ps_[1], 1)->Stats().tables(0).cold_rows(), kKeys / 4);
  ASSERT_OK(old_.Open(Request(1, all)));
  ASSERT_OK(ps_[0]->Open(Request(2, all)));
  uint64_t step = 0;
  while (step < 10) Train(2, step++);
  const std::vector<uint32_t> split[2] = {Partitions(0, 100), Partitions(100, kMovePartitions)};
  Move(2, step, split);
  std::map<uint64_t, std::string> rows;
  uint64_t count = 0;
  for (const auto& ps : ps_) {
    count += Find(*ps, 3)->rows();
    rows.merge(Rows(*Find(*ps, 3)));
  }
  EXPECT_TRUE(rows == Rows(*Find(old_, 1)));
  EXPECT_EQ(count, rows.size());
}

}  // namespace
}  // namespace tessera::ps

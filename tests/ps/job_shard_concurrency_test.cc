#include <random>
#include <thread>

#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

TEST(ConcurrentAsyncTraining, CountsEveryPushOnceThroughRepeatsPullsAndCheckpoints) {
  constexpr uint32_t kWorkers = 6;
  constexpr uint64_t kPushes = 120, kKeys = 300;
  HandClock clock;
  FaultFileSystem files;
  ShardedJob job(Job({SgdTable("count", 2, v1::ASYNC)}, kWorkers), 1, files, clock);
  ASSERT_OK(job.status());
  JobShard& shard = job.shard(0);
  Block block;
  for (uint64_t key = 0; key < kKeys; ++key) block.keys.push_back(key);
  block.values.assign(kKeys * 2, -1.0f);
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < kWorkers; ++rank) {
    // Two threads of each rank send the same pushes.
    for (int copy = 0; copy < 2; ++copy) {
      threads.emplace_back([&, rank] {
        for (uint64_t sequence = 0; sequence < kPushes; ++sequence) {
          EXPECT_OK(shard.Push(CallOf(PushOf(rank, sequence, {block}))));
        }
      });
    }
  }
  std::thread reader([&] {
    while (!done) {
      PendingPull pull(shard, PullOf(0, 0, {{0, block.keys}}));
      EXPECT_OK(pull.status());
      // A row is never seen half moved.
      const std::vector<float> values = pull.values();
      for (size_t i = 0; i < values.size(); i += 2) EXPECT_EQ(values[i], values[i + 1]);
    }
  });
  std::thread cutter([&] {
    while (!done) {
      // All of a push or nothing of it.
      const SavedRows rows = job.Rows(0);
      for (const auto& [key, row] : rows) EXPECT_EQ(row, rows.begin()->second);
    }
  });
  for (std::thread& thread : threads) thread.join();
  done = true;
  reader.join();
  cutter.join();
  const SavedRows rows = job.Rows(0);
  ASSERT_EQ(rows.size(), kKeys);
  for (const auto& [key, row] : rows) {
    EXPECT_EQ(row.floats, (std::vector<float>{kWorkers * kPushes, kWorkers * kPushes}));
    EXPECT_EQ(row.frequency, kWorkers * kPushes);
  }
}

TEST(ConcurrentSyncTraining, EndsWithTheSameBitsAsWithoutThreads) {
  constexpr uint32_t kWorkers = 4;
  constexpr uint64_t kSteps = 60;
  const auto gradients = [](uint32_t rank, uint64_t step) {
    std::mt19937 random(step * 100 + rank);
    std::normal_distribution<float> normal;
    Block block;
    for (uint64_t key = 0; key < 50; ++key) {
      block.keys.push_back(key);
      for (int d = 0; d < 4; ++d) block.values.push_back(normal(random));
    }
    return std::vector<Block>{block};
  };
  HandClock clock;
  FaultFileSystem files;
  const v1::OpenJobRequest request = Job({AdamTable("t", 4, v1::SYNC)}, kWorkers);
  ShardedJob alone(request, 1, files, clock);
  for (uint64_t step = 0; step < kSteps; ++step) {
    for (uint32_t rank = 0; rank < kWorkers; ++rank) alone.Push(rank, step, gradients(rank, step));
  }

  ShardedJob together(request, 1, files, clock);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < kWorkers; ++rank) {
    threads.emplace_back([&, rank] {
      for (uint64_t step = 0; step < kSteps; ++step) {
        absl::Mutex mu;
        bool answered = false;
        together.shard(0).Pull(CallOf(PullOf(rank, step, {{0, {1, 2, 3}}})),
                               absl::InfiniteDuration(), [&](absl::StatusOr<PullAnswer> answer) {
                                 EXPECT_OK(answer);
                                 absl::MutexLock lock(&mu);
                                 answered = true;
                               });
        {
          absl::MutexLock lock(&mu);
          mu.Await(absl::Condition(&answered));
        }
        EXPECT_OK(together.shard(0).Push(CallOf(PushOf(rank, step, gradients(rank, step)))));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together.Rows(kSteps), alone.Rows(kSteps));
}

}  // namespace
}  // namespace tessera::ps

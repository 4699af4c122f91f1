#include "worker/batch_pipeline.h"

#include <atomic>
#include <numeric>
#include <set>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/common/thread_limit.h"

namespace tessera::worker {
namespace {

TEST(BatchPipeline, GivesBatchesInOrderThenNull) {
  BatchPipeline pipeline(3, 8, 1, {.fill = [](size_t, PreparedBatch* batch) {
                           batch->batch.size = batch->index * 10;
                         }});
  for (uint64_t i = 3; i < 8; ++i) {
    auto batch = pipeline.Next();
    ASSERT_NE(batch, nullptr);
    EXPECT_EQ(batch->index, i);
    EXPECT_EQ(batch->batch.size, i * 10);
    pipeline.Recycle(std::move(batch));
  }
  EXPECT_EQ(pipeline.Next(), nullptr);
  EXPECT_EQ(pipeline.Next(), nullptr);
}

TEST(BatchPipeline, GivesNothingForAnEmptyRange) {
  BatchPipeline pipeline(4, 4, 3, {.fill = [](size_t, PreparedBatch*) { FAIL(); }});
  EXPECT_EQ(pipeline.Next(), nullptr);
}

TEST(BatchPipelineDeathTest, WorksWithAsManyThreadsAsTheSystemHas) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto take_all = [] {
    LimitThreads(1);
    BatchPipeline pipeline(0, 50, 3, {.fill = [](size_t, PreparedBatch*) {}});
    int taken = 0;
    while (auto batch = pipeline.Next()) {
      ++taken;
      pipeline.Recycle(std::move(batch));
    }
    _exit(taken == 50 ? 0 : 2);
  };
  // Not root's, this process would get none at all.
  if (geteuid() != 0) GTEST_SKIP() << "leaving one thread needs root";
  EXPECT_EXIT(take_all(), testing::ExitedWithCode(0), "");
}

TEST(BatchPipeline, PreparesAtMostItsDepthAhead) {
  std::atomic<uint64_t> filled = 0;
  std::vector<uint64_t> seen;
  BatchPipeline pipeline(0, 100, 1, {.fill = [&](size_t, PreparedBatch*) { ++filled; }});
  for (uint64_t taken = 1; taken <= 100; ++taken) {
    ASSERT_NE(pipeline.Next(), nullptr);
    EXPECT_LE(filled.load(), taken + BatchPipeline::kDepth + 1);  // one more may be in the making
  }
}

// Threads overtake each other in filling; what is placed is in order, one at a time.
TEST(BatchPipeline, PlacesInOrderWhatSeveralThreadsFill) {
  constexpr size_t kThreads = 4;
  std::atomic<uint64_t> filled = 0, placing = 0;
  std::vector<uint64_t> placed;
  std::set<size_t> threads;
  absl::Mutex mu;
  BatchPipeline pipeline(10, 110, kThreads,
                         {.fill =
                              [&](size_t thread, PreparedBatch* batch) {
                                ++filled;
                                batch->batch.size = batch->index;
                                // The later of two neighbours is ready first.
                                if (batch->index % 2 == 0) absl::SleepFor(absl::Milliseconds(2));
                                absl::MutexLock lock(&mu);
                                threads.insert(thread);
                              },
                          .place =
                              [&](PreparedBatch* batch) {
                                EXPECT_EQ(++placing, 1u);
                                placed.push_back(batch->index);
                                --placing;
                              }});
  for (uint64_t i = 10; i < 110; ++i) {
    auto batch = pipeline.Next();
    ASSERT_NE(batch, nullptr);
    EXPECT_EQ(batch->index, i);
    EXPECT_EQ(batch->batch.size, i);
    EXPECT_LE(filled.load(), i - 10 + 1 + BatchPipeline::kDepth + kThreads - 1);
    pipeline.Recycle(std::move(batch));
  }
  EXPECT_EQ(pipeline.Next(), nullptr);
  std::vector<uint64_t> expected(100);
  std::iota(expected.begin(), expected.end(), 10u);
  EXPECT_EQ(placed, expected);
  EXPECT_GT(threads.size(), 1u);
}

TEST(BatchPipeline, TakesAndGivesBackTheMemoryOfBatches) {
  SpareBatches spare;
  const auto fill = [](size_t, PreparedBatch* batch) { batch->batch.labels.resize(1000); };
  std::set<const float*> seen;
  {
    BatchPipeline pipeline(0, 20, 2, {.fill = fill}, &spare);
    while (auto batch = pipeline.Next()) {
      seen.insert(batch->batch.labels.data());
      pipeline.Recycle(std::move(batch));
    }
  }
  const size_t batches = spare.size();
  EXPECT_EQ(batches, seen.size());
  {
    BatchPipeline pipeline(0, 100, 2, {.fill = fill}, &spare);
    EXPECT_TRUE(spare.empty());
    auto batch = pipeline.Next();
    EXPECT_TRUE(seen.contains(batch->batch.labels.data()));
    pipeline.Recycle(std::move(batch));
  }  // with some that nobody has taken
  EXPECT_GE(spare.size(), batches);
  for (const auto& batch : spare) EXPECT_NE(batch, nullptr);
}

TEST(BatchPipeline, GivesBackABatchThatWaitsForItsTurnInTheEnd) {
  SpareBatches spare;
  absl::BlockingCounter begun(2);
  {
    BatchPipeline pipeline(0, 100, 2,
                           {.fill =
                                [&](size_t, PreparedBatch* batch) {
                                  if (batch->index < 2) begun.DecrementCount();
                                  // The second waits for it beyond the end.
                                  if (batch->index == 0) absl::SleepFor(absl::Milliseconds(50));
                                }},
                           &spare);
    begun.Wait();
  }
  EXPECT_GE(spare.size(), 2u);
}

TEST(BatchPipeline, CanBeDroppedHalfWay) {
  BatchPipeline pipeline(0, 1000, 2, {.fill = [](size_t, PreparedBatch*) {}});
  EXPECT_NE(pipeline.Next(), nullptr);
}

}  // namespace
}  // namespace tessera::worker

#include "worker/batch_pipeline.h"

#include <atomic>
#include <vector>

#include "gtest/gtest.h"

namespace tessera::worker {
namespace {

TEST(BatchPipeline, GivesBatchesInOrderThenNull) {
  BatchPipeline pipeline(3, 8,
                         [](uint64_t i, PreparedBatch* batch) { batch->batch.size = i * 10; });
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
  BatchPipeline pipeline(4, 4, [](uint64_t, PreparedBatch*) { FAIL(); });
  EXPECT_EQ(pipeline.Next(), nullptr);
}

TEST(BatchPipeline, PreparesAtMostItsDepthAhead) {
  std::atomic<uint64_t> filled = 0;
  std::vector<uint64_t> seen;
  BatchPipeline pipeline(0, 100, [&](uint64_t, PreparedBatch*) { ++filled; });
  for (uint64_t taken = 1; taken <= 100; ++taken) {
    ASSERT_NE(pipeline.Next(), nullptr);
    EXPECT_LE(filled.load(), taken + BatchPipeline::kDepth + 1);  // one more may be in the making
  }
}

TEST(BatchPipeline, CanBeDroppedHalfWay) {
  BatchPipeline pipeline(0, 1000, [](uint64_t, PreparedBatch*) {});
  EXPECT_NE(pipeline.Next(), nullptr);
}

}  // namespace
}  // namespace tessera::worker

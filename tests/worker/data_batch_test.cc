#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/batch.h"

namespace tessera::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Three rows, two dense columns, one plain and one weighted sparse column.
Batch ThreeRows() {
  Batch batch;
  ClearBatch(2, &batch);
  batch.size = 3;
  batch.labels = {0, 1, 0};
  batch.dense = {1, 2, 3, 4, 5, 6};
  batch.sparse[0].offsets = {0, 2, 2, 3};
  batch.sparse[0].keys = {10, 11, 30};
  batch.sparse[1].offsets = {0, 1, 3, 3};
  batch.sparse[1].keys = {7, 8, 9};
  batch.sparse[1].weights = {0.5f, 1.5f, 2.5f};
  return batch;
}

TEST(BatchTest, GatherTakesRowsInTheOrderAskedFor) {
  Batch out;
  out.labels = {9, 9, 9, 9, 9};  // whatever was there before
  GatherRows(ThreeRows(), {2, 0, 1, 0}, &out);
  EXPECT_EQ(out.size, 4u);
  EXPECT_THAT(out.labels, ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(out.dense, ElementsAre(5, 6, 1, 2, 3, 4, 1, 2));
  EXPECT_THAT(out.sparse[0].offsets, ElementsAre(0, 1, 3, 3, 5));
  EXPECT_THAT(out.sparse[0].keys, ElementsAre(30, 10, 11, 10, 11));
  EXPECT_THAT(out.sparse[0].weights, IsEmpty());
  EXPECT_THAT(out.sparse[1].offsets, ElementsAre(0, 0, 1, 3, 4));
  EXPECT_THAT(out.sparse[1].keys, ElementsAre(7, 8, 9, 7));
  EXPECT_THAT(out.sparse[1].weights, ElementsAre(0.5f, 1.5f, 2.5f, 0.5f));
}

TEST(BatchTest, GatherOfNoRowsIsAnEmptyBatch) {
  Batch out = ThreeRows();
  GatherRows(ThreeRows(), {}, &out);
  EXPECT_EQ(out.size, 0u);
  EXPECT_THAT(out.dense, IsEmpty());
  EXPECT_EQ(out.dense_width(), 0u);
  EXPECT_THAT(out.sparse[1].offsets, ElementsAre(0));
  EXPECT_THAT(out.sparse[1].weights, IsEmpty());
}

TEST(BatchTest, AppendedPiecesEqualTheWhole) {
  const Batch whole = ThreeRows();
  Batch out;
  ClearBatch(2, &out);
  AppendRows(whole, 0, 1, &out);
  AppendRows(whole, 1, 1, &out);
  AppendRows(whole, 1, 3, &out);
  EXPECT_EQ(out.labels, whole.labels);
  EXPECT_EQ(out.dense, whole.dense);
  EXPECT_EQ(out.sparse[0].offsets, whole.sparse[0].offsets);
  EXPECT_EQ(out.sparse[1].keys, whole.sparse[1].keys);
  EXPECT_EQ(out.sparse[1].weights, whole.sparse[1].weights);
}

TEST(BatchTest, ColumnsOfOneKeyEachAreKnownAndGatheredAsOthersAre) {
  Batch batch = ThreeRows();
  FindOneEach(&batch);
  EXPECT_FALSE(batch.sparse[0].one_each);  // as many keys as rows, but two of one row
  batch.sparse[1].offsets = {0, 1, 2, 3};
  const Batch unknown = batch;
  FindOneEach(&batch);
  ASSERT_TRUE(batch.sparse[1].one_each);
  Batch known_out, unknown_out;
  known_out.sparse.resize(2);
  known_out.sparse[1].one_each = true;  // whatever was there before
  for (const std::vector<uint32_t>& rows : std::vector<std::vector<uint32_t>>{{2, 0, 2, 1}, {}}) {
    GatherRows(batch, rows, &known_out);
    GatherRows(unknown, rows, &unknown_out);
    EXPECT_FALSE(known_out.sparse[0].one_each);
    EXPECT_TRUE(known_out.sparse[1].one_each);
    EXPECT_FALSE(unknown_out.sparse[1].one_each);
    for (size_t c = 0; c < 2; ++c) {
      EXPECT_EQ(known_out.sparse[c].offsets, unknown_out.sparse[c].offsets);
      EXPECT_EQ(known_out.sparse[c].keys, unknown_out.sparse[c].keys);
      EXPECT_EQ(known_out.sparse[c].weights, unknown_out.sparse[c].weights);
    }
  }
  AppendRows(unknown, 0, 1, &known_out);
  EXPECT_FALSE(known_out.sparse[1].one_each);
}

TEST(BatchTest, AColumnWhoseLastRowHasNoneHasNotOneEach) {
  Batch batch;
  ClearBatch(1, &batch);
  batch.size = 10'000;
  for (uint32_t row = 1; row <= batch.size; ++row) batch.sparse[0].offsets.push_back(row);
  batch.sparse[0].keys.resize(batch.size);
  FindOneEach(&batch);
  EXPECT_TRUE(batch.sparse[0].one_each);
  batch.sparse[0].offsets[batch.size - 1] = batch.size;
  FindOneEach(&batch);
  EXPECT_FALSE(batch.sparse[0].one_each);
}

TEST(BatchTest, RoomForMoreOfTheSameIsTakenOnce) {
  const Batch whole = ThreeRows();
  Batch out;
  ClearBatch(2, &out);
  ReserveRows(whole, 3 * 64, &out);
  const float* const dense = out.dense.data();
  const uint64_t* const keys = out.sparse[1].keys.data();
  const uint32_t* const offsets = out.sparse[0].offsets.data();
  for (int i = 0; i < 64; ++i) AppendRows(whole, 0, 3, &out);
  EXPECT_EQ(out.size, 3u * 64);
  EXPECT_EQ(out.dense.data(), dense);
  EXPECT_EQ(out.sparse[1].keys.data(), keys);
  EXPECT_EQ(out.sparse[0].offsets.data(), offsets);
}

// The first rows of a file may have many ids, and the others few.
TEST(BatchTest, AColumnWithManyIdsGetsRoomForAFew) {
  Batch one;
  ClearBatch(1, &one);
  one.size = 1;
  one.sparse[0].keys.resize(100'000);
  one.sparse[0].offsets.push_back(100'000);
  Batch out;
  ClearBatch(1, &out);
  ReserveRows(one, 1 << 20, &out);
  EXPECT_GE(out.sparse[0].keys.capacity(), 1u << 20);
  EXPECT_LE(out.sparse[0].keys.capacity(), 4u << 20);
}

TEST(BatchTest, WeightsLeftOutCountAsOnesBesideWeightsThatAreThere) {
  const Batch weighted = ThreeRows();
  Batch plain = ThreeRows();
  plain.sparse[1].weights.clear();
  Batch out;
  ClearBatch(2, &out);
  AppendRows(plain, 0, 2, &out);
  AppendRows(weighted, 0, 1, &out);
  AppendRows(plain, 0, 1, &out);
  EXPECT_THAT(out.sparse[1].weights, ElementsAre(1, 1, 1, 0.5f, 1));
}

}  // namespace
}  // namespace tessera::worker

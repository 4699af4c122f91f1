#include "common/checkpoint/diff.h"

#include <algorithm>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/checkpoint_testing.h"
#include "tests/common/fault_file_system.h"

namespace tessera {
namespace {

using testing::ElementsAre;

struct Layout {
  uint32_t partitions;
  uint32_t parts;
};

std::vector<TableDifference> DiffOf(const std::vector<TestTable>& a, Layout as,
                                    const std::vector<TestTable>& b, Layout bs) {
  FaultFileSystem fs;
  EXPECT_TRUE(WriteTestCheckpoint(fs, "j/a", a, as.partitions, as.parts).ok());
  EXPECT_TRUE(WriteTestCheckpoint(fs, "j/b", b, bs.partitions, bs.parts).ok());
  const auto diff = DiffCheckpoints(fs, "j/a", "j/b");
  EXPECT_TRUE(diff.ok()) << diff.status();
  return diff.value_or(std::vector<TableDifference>());
}

TEST(DiffCheckpoints, TheSameModelIsEqualWhateverTheNumbersOfPsAndPartitions) {
  for (const Layout layout : {Layout{16, 1}, {16, 3}, {7, 2}, {1, 1}, {48, 5}}) {
    const auto diff = DiffOf(SmallModel(), {16, 2}, SmallModel(), layout);
    ASSERT_EQ(diff.size(), 3u);
    for (const TableDifference& table : diff) EXPECT_TRUE(table.equal()) << table.name;
    EXPECT_EQ(diff[0].same, 6u);
    EXPECT_EQ(diff[1].same, 0u);
    EXPECT_EQ(diff[2].same, 3u);
    EXPECT_EQ(diff[0].other_metadata, 0u);
  }
}

TEST(DiffCheckpoints, NamesWhatDiffersAndWhereItIsMissing) {
  std::vector<TestTable> other = SmallModel();
  other[0].rows.erase(7);
  other[0].rows[8] = {1, 1, {1, 2, 3}};
  other[0].rows.at(0).values[2] = 5;   // a slot
  other[2].rows.at(1).values[2] = 0;   // was -0
  other[2].rows.at(2).frequency += 1;  // metadata alone
  const auto diff = DiffOf(SmallModel(), {16, 2}, other, {5, 1});
  EXPECT_THAT(diff[0].only_first.first, ElementsAre(7));
  EXPECT_THAT(diff[0].only_second.first, ElementsAre(8));
  EXPECT_THAT(diff[0].different.first, ElementsAre(0));
  EXPECT_EQ(diff[0].same, 4u);
  EXPECT_FALSE(diff[0].equal());
  EXPECT_TRUE(diff[1].equal());
  EXPECT_THAT(diff[2].different.first, ElementsAre(1));
  EXPECT_EQ(diff[2].other_metadata, 1u);
  EXPECT_EQ(diff[2].same, 2u);
}

TEST(DiffCheckpoints, AgreesWithMapsOnRandomModels) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 20; ++round) {
    std::vector<TestTable> a = {{"t", 1, 0, {}}};
    std::vector<TestTable> b = {{"t", 1, 0, {}}};
    std::vector<uint64_t> only_a, only_b, different;
    uint64_t same = 0;
    for (int i = 0; i < 300; ++i) {
      const uint64_t key = random();
      switch (random() % 8) {
        case 0:
          only_a.push_back(key);
          a[0].rows[key] = {1, 1, {1}};
          break;
        case 1:
          only_b.push_back(key);
          b[0].rows[key] = {1, 1, {1}};
          break;
        case 2:
          different.push_back(key);
          a[0].rows[key] = {1, 1, {1}};
          b[0].rows[key] = {1, 1, {2}};
          break;
        default:
          ++same;
          a[0].rows[key] = b[0].rows[key] = {1, 1, {3}};
      }
    }
    const Layout as = {static_cast<uint32_t>(1 + random() % 40), 2};
    const Layout bs = {static_cast<uint32_t>(1 + random() % 40), 3};
    const auto diff = DiffOf(a, as, b, bs);
    ASSERT_EQ(diff.size(), 1u);
    EXPECT_EQ(diff[0].same, same) << as.partitions << " and " << bs.partitions;
    EXPECT_EQ(diff[0].only_first.count, only_a.size());
    EXPECT_EQ(diff[0].only_second.count, only_b.size());
    EXPECT_EQ(diff[0].different.count, different.size());
    EXPECT_EQ(diff[0].only_first.first.size(), std::min(only_a.size(), TableDifference::kKeys));
    for (const uint64_t key : diff[0].only_first.first) {
      EXPECT_THAT(only_a, testing::Contains(key));
    }
  }
}

TEST(DiffCheckpoints, TablesOfAnotherNameOrShapeAreNotEqual) {
  std::vector<TestTable> other = SmallModel();
  other[0].name = "users";
  other[1].dim = 5;
  other[2].dim = 2;
  other[2].slot_floats = 1;
  std::vector<std::string> shapes;
  for (const TableDifference& table : DiffOf(SmallModel(), {4, 1}, other, {4, 1})) {
    EXPECT_FALSE(table.equal()) << table.name;
    shapes.push_back(table.name + ": " + table.shape);
  }
  EXPECT_THAT(shapes, ElementsAre("user: only in the first", "empty: dim 4 and 5",
                                  "dense: dim 3 and 2", "users: only in the second"));
}

TEST(DiffCheckpoints, ADamagedFileIsAnErrorThatNamesIt) {
  FaultFileSystem fs;
  ASSERT_TRUE(WriteTestCheckpoint(fs, "j/a", SmallModel(), 4, 2).ok());
  ASSERT_TRUE(WriteTestCheckpoint(fs, "j/b", SmallModel(), 4, 2).ok());
  std::string bytes = fs.Content("j/b/rows-1");
  bytes[bytes.size() / 2] ^= 1;
  fs.SetContent("j/b/rows-1", bytes);
  const absl::Status status = DiffCheckpoints(fs, "j/a", "j/b").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("j/b/rows-1"));
  EXPECT_EQ(DiffCheckpoints(fs, "j/a", "none").status().code(), absl::StatusCode::kNotFound);
}

TEST(DiffCheckpoints, EndsSoonWhenItIsToldTo) {
  FaultFileSystem fs;
  ASSERT_TRUE(WriteTestCheckpoint(fs, "j/a", SmallModel(), 4, 2).ok());
  int all = 0;
  const auto count = [&all] {
    ++all;
    return absl::OkStatus();
  };
  ASSERT_TRUE(DiffCheckpoints(fs, "j/a", "j/a", count).ok());
  ASSERT_GT(all, 8);
  for (int stop_at = 1; stop_at <= all; ++stop_at) {
    int asked = 0;
    const auto stop = [&] {
      return ++asked >= stop_at ? absl::CancelledError("enough") : absl::OkStatus();
    };
    EXPECT_EQ(DiffCheckpoints(fs, "j/a", "j/a", stop).status(), absl::CancelledError("enough"));
    EXPECT_EQ(asked, stop_at);
  }
}

}  // namespace
}  // namespace tessera

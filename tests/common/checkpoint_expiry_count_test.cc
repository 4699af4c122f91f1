#include "common/checkpoint/expiry_count.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/checkpoint_testing.h"
#include "tests/common/fault_file_system.h"

namespace tessera {
namespace {

constexpr char kCutFolder[] = "c/step-000000000012";

v1::TableSpec After(const std::string& table, uint64_t steps) {
  v1::TableSpec spec;
  spec.set_name(table);
  spec.mutable_expiry()->set_after_steps(steps);
  return spec;
}

// SmallModel's dense table has three rows of step 9.
uint64_t ExpiredOfDense(FileSystem& fs, uint64_t steps) {
  const v1::TableSpec rule = After("dense", steps);
  const auto counts = CountExpiring(fs, kCutFolder, {&rule});
  EXPECT_TRUE(counts.ok()) << counts.status();
  if (!counts.ok() || counts->size() != 1) return ~uint64_t{0};
  EXPECT_EQ(counts->front().rows, 3u);
  EXPECT_EQ(counts->front().by_age, counts->front().expired);
  return counts->front().expired;
}

TEST(CountExpiring, CountsAgesFromThePushesBeforeTheCut) {
  FaultFileSystem fs;
  ASSERT_TRUE(WriteTestCheckpoint(fs, kCutFolder, SmallModel(), 4, 2).ok());
  // Written before the numbers of pushes were: the step, 12.
  EXPECT_EQ(ExpiredOfDense(fs, 2), 3u);
  EXPECT_EQ(ExpiredOfDense(fs, 3), 0u);
  v1::CheckpointManifest manifest = *ReadManifest(fs, kCutFolder);
  manifest.mutable_position()->set_next_push(110);
  ASSERT_TRUE(WriteManifest(fs, kCutFolder, manifest).ok());
  EXPECT_EQ(ExpiredOfDense(fs, 100), 3u);
  EXPECT_EQ(ExpiredOfDense(fs, 101), 0u);
}

TEST(CountExpiring, CountsTheNewestLayerOfARow) {
  FaultFileSystem fs;
  std::vector<TestTable> model = SmallModel();
  ASSERT_TRUE(WriteTestCheckpoint(fs, kCutFolder, model, 4, 2).ok());
  v1::CheckpointManifest manifest = *ReadManifest(fs, kCutFolder);
  std::vector<TestTable> change = SmallModel();
  for (TestTable& table : change) table.rows.clear();
  change[2].rows[0] = {2, 11, {0, 0, 0}};
  const auto layer =
      WriteTestLayer(fs, std::string(kCutFolder) + "/rows-new", change, {{}, {}, {2}}, 4, 1);
  ASSERT_TRUE(layer.ok()) << layer.status();
  *manifest.add_files() = *layer;
  manifest.mutable_tables(2)->set_rows(2);
  ASSERT_TRUE(WriteManifest(fs, kCutFolder, manifest).ok());
  const v1::TableSpec rule = After("dense", 2);
  const auto counts = CountExpiring(fs, kCutFolder, {&rule});
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->front().rows, 2u);
  EXPECT_EQ(counts->front().expired, 1u);
}

TEST(CountExpiring, NamesATableThatTheCheckpointLacks) {
  FaultFileSystem fs;
  ASSERT_TRUE(WriteTestCheckpoint(fs, kCutFolder, SmallModel(), 4, 2).ok());
  const v1::TableSpec unruled = After("users", 0), rule = After("users", 1);
  const auto none = CountExpiring(fs, kCutFolder, {&unruled});
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->empty());
  const absl::Status missing = CountExpiring(fs, kCutFolder, {&rule}).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), testing::HasSubstr("users"));
}

}  // namespace
}  // namespace tessera
